//! The async shell of a pool, and its announcement.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::oneshot;
use tracing::warn;

use super::{
    MAX_SLOTS, SlotsError,
    table::{Action, Table},
};
use crate::{
    claim::{Claim, Origin},
    clock::Moment,
    engine::{
        AnnounceReply, AnnounceRequest, Announced, Candidates, EngineError, EngineErrorKind, Grant, ReleaseReply,
        ReleaseRequest, Settle, SlotsReply, SlotsRequest,
    },
    gate::{Counters, Released, Want},
    key::Key,
    locks::{Inner, lock},
    mode::Mode,
    session::{HoldState, SessionHealth},
    visit::{Answer, Entry},
};

/// How long an answer to "which other limits are there" stands.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// What tells one pool from another in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PoolId {
    Named(Key),
    Resource(i32),
}

impl PoolId {
    /// The pool's own key, which nobody locks.
    fn key(self) -> Key {
        match self {
            Self::Named(key) => key,
            Self::Resource(resource) => Key::pair(resource, i32::MIN),
        }
    }

    fn slot_key(self, slot: u32) -> Key {
        match self {
            Self::Named(key) => key.derive("slot", slot),
            Self::Resource(resource) => Key::pair(resource, number(slot)),
        }
    }

    /// The marker that tells others which limit this process gives the pool.
    fn marker(self, limit: u32) -> Key {
        self.key().derive_pair("slots", number(limit))
    }
}

/// Slots and limits are at most [`MAX_SLOTS`].
fn number(slot: u32) -> i32 {
    i32::try_from(slot).unwrap_or(i32::MAX)
}

/// A pool of slots as all its clones in this process share it.
///
/// It is named in an engine's signatures only behind the replies; users meet it as [`Slots`](super::Slots).
pub(crate) struct Pool {
    gate: Arc<Inner>,
    id: PoolId,
    /// Derived once: it costs a hash for each slot.
    keys: Box<[Key]>,
    table: Mutex<Table<Answer>>,
    notice: Mutex<Notice>,
}

/// The pool's announcement, and what others have announced.
#[derive(Debug, Default)]
struct Notice {
    grant: Option<Grant>,
    asked_at: Option<Moment>,
    others: Vec<u32>,
}

impl Pool {
    pub(super) fn find_or_make(gate: &Arc<Inner>, id: PoolId, limit: u32) -> Result<Arc<Self>, SlotsError> {
        match limit {
            0 => return Err(SlotsError::NoSlots),
            1..=MAX_SLOTS => {}
            _ => return Err(SlotsError::TooManySlots { limit }),
        }
        let mut pools = lock(&gate.pools);
        if let Some(pool) = pools.get(&id).and_then(std::sync::Weak::upgrade) {
            let existing = pool.limit();
            return if existing == limit {
                Ok(pool)
            } else {
                Err(SlotsError::OtherLimit { existing, limit })
            };
        }
        pools.retain(|_, pool| pool.strong_count() > 0);
        let mut table = Table::new(limit, gate.hand_over);
        for (slot, grant) in lock(&gate.leaked).get(&id).into_iter().flatten() {
            table.hold(*slot, grant.clone());
        }
        let pool = Arc::new(Self {
            gate: Arc::clone(gate),
            id,
            keys: (0..limit).map(|slot| id.slot_key(slot)).collect(),
            table: Mutex::new(table),
            notice: Mutex::new(Notice::default()),
        });
        pools.insert(id, Arc::downgrade(&pool));
        Ok(pool)
    }

    pub(crate) const fn gate(&self) -> &Arc<Inner> {
        &self.gate
    }

    pub(crate) const fn id(&self) -> PoolId {
        self.id
    }

    pub(crate) fn key(&self) -> Key {
        self.id.key()
    }

    pub(super) fn limit(&self) -> u32 {
        lock(&self.table).limit()
    }

    pub(super) fn slot_key(&self, slot: u32) -> Key {
        self.keys
            .get(slot as usize)
            .copied()
            .unwrap_or_else(|| self.id.slot_key(slot))
    }

    pub(super) fn other_limits(&self) -> Vec<u32> {
        lock(&self.notice).others.clone()
    }

    pub(crate) fn permits(&self) -> usize {
        lock(&self.table).permits()
    }

    pub(crate) fn is_settling(&self) -> bool {
        lock(&self.table).is_settling()
    }

    pub(crate) fn counters(&self) -> Counters {
        lock(&self.table).counters
    }

    pub(crate) fn enter(self: &Arc<Self>, want: Want) -> Entry {
        self.announce();
        let mut answer = None;
        let mut actions = Vec::new();
        let mut table = lock(&self.table);
        // Under the mutex that closing takes after it has set the flag, so that it finds all who came in.
        if self.gate.is_closed() {
            return Entry::Answered(Err(EngineError::new(EngineErrorKind::Closed)));
        }
        let ticket = table.enter(
            want == Want::Try,
            || {
                let (to, from) = oneshot::channel();
                answer = Some(from);
                to
            },
            &mut actions,
        );
        drop(table);
        self.perform(actions, None);
        match (ticket, answer) {
            (Some(ticket), Some(answer)) => Entry::Waits { ticket, answer },
            _ => Entry::Answered(Ok(None)),
        }
    }

    pub(crate) fn leave(&self, ticket: u64) {
        lock(&self.table).leave(ticket);
    }

    pub(crate) fn candidates(&self, flight: u64) -> Candidates {
        let (slots, want) = lock(&self.table).candidates(flight, fastrand::usize(..));
        Candidates {
            keys: slots.into_iter().map(|slot| self.slot_key(slot)).collect(),
            want,
        }
    }

    pub(crate) fn answered(self: &Arc<Self>, flight: u64, answer: Result<Vec<(usize, Grant)>, EngineError>) {
        let now = self.gate.clock.now();
        self.change(|table, actions| table.answered(flight, answer, now, actions));
    }

    pub(crate) fn release(
        self: &Arc<Self>,
        slot: u32,
        session: &SessionHealth,
        turn: u64,
        waiter: Option<oneshot::Sender<Result<bool, EngineError>>>,
    ) {
        let mut actions = Vec::new();
        let now = self.gate.clock.now();
        let held = session.state() == HoldState::Held;
        let released = lock(&self.table).release(slot, turn, now, &mut actions);
        if released == Released::Sent {
            self.perform(actions, waiter);
        } else {
            if let Some(waiter) = waiter {
                // Whoever asked may have gone.
                let _ = waiter.send(Ok(held && released == Released::Kept));
            }
            self.perform(actions, None);
        }
        self.gate.tell_given_up();
    }

    /// Keeps in mind that a slot stays held, for a pool of this name that is made when this one has gone: the session
    /// would be granted the slot once more.
    pub(crate) fn leak(&self, slot: u32, turn: u64) {
        let Some(grant) = lock(&self.table).grant(slot, turn) else {
            return;
        };
        let mut leaked = lock(&self.gate.leaked);
        let slots = leaked.entry(self.id).or_default();
        slots.retain(|(_, grant)| !grant.session().is_lost());
        slots.push((slot, grant));
    }

    pub(crate) fn settled(self: &Arc<Self>, slot: u32) {
        self.change(|table, actions| table.settled(slot, actions));
        self.gate.tell_given_up();
    }

    pub(crate) fn session_lost(self: &Arc<Self>, session: &SessionHealth) {
        self.change(|table, actions| table.session_lost(session, actions));
    }

    pub(crate) fn server_silent(self: &Arc<Self>, error: &EngineError) {
        self.change(|table, actions| table.server_silent(error, actions));
    }

    pub(crate) fn close(self: &Arc<Self>, error: &EngineError) {
        self.change(|table, actions| table.close(error, actions));
    }

    pub(crate) fn announced(self: &Arc<Self>, announced: Announced) {
        let others: Vec<u32> = match &announced.others {
            Ok(others) => others.iter().filter_map(|limit| u32::try_from(*limit).ok()).collect(),
            Err(_) => self.other_limits(),
        };
        let is_news = !others.is_empty() && others != lock(&self.notice).others;
        if is_news {
            // Not under the mutex: whoever reads the log may use the pool.
            warn!(
                target: "latchwork::core",
                pool = %self.key(),
                limit = self.keys.len(),
                ?others,
                "other processes give this pool of slots another limit: the largest holds",
            );
        }
        let mut notice = lock(&self.notice);
        notice.others = others;
        notice.grant = Some(announced.grant);
    }

    /// Announces the pool where that has not been done on a living session, and looks at the others from time to time.
    fn announce(self: &Arc<Self>) {
        if self.gate.is_closed() {
            return;
        }
        let now = self.gate.clock.now();
        let mut notice = lock(&self.notice);
        if notice.grant.as_ref().is_some_and(|grant| grant.session().is_lost()) {
            notice.grant = None;
            notice.asked_at = None;
        }
        if notice.asked_at.is_some_and(|asked| now.since(asked) < LOOK_AGAIN_AFTER) {
            return;
        }
        notice.asked_at = Some(now);
        let held = notice.grant.clone();
        drop(notice);
        let marker = self.id.marker(self.limit());
        self.gate
            .engine
            .announce(AnnounceRequest::new(marker, held, AnnounceReply::new(Arc::clone(self))));
    }

    fn change(self: &Arc<Self>, change: impl FnOnce(&mut Table<Answer>, &mut Vec<Action<Answer>>)) {
        let mut actions = Vec::new();
        change(&mut lock(&self.table), &mut actions);
        self.perform(actions, None);
    }

    fn perform(
        self: &Arc<Self>,
        mut actions: Vec<Action<Answer>>,
        mut waiter: Option<oneshot::Sender<Result<bool, EngineError>>>,
    ) {
        // By index, since a gift that nobody takes adds actions at the end.
        let mut next = 0;
        while next < actions.len() {
            let action = std::mem::replace(&mut actions[next], Action::Done);
            next += 1;
            match action {
                Action::Ask { flight, later } => {
                    let reply = SlotsReply::new(Arc::clone(self), flight);
                    self.gate.engine.take_slots(SlotsRequest::new(later, reply));
                }
                Action::Release { slot, grant, settle } => {
                    let reply = settle.then(|| Settle::Slot(Arc::clone(self), slot));
                    let reply = ReleaseReply::new(reply, waiter.take());
                    let key = self.slot_key(slot);
                    self.gate
                        .engine
                        .release(ReleaseRequest::new(key, Mode::Exclusive, grant, reply));
                    if !settle {
                        lock(&self.table).settled(slot, &mut actions);
                        self.gate.tell_given_up();
                    }
                }
                Action::Give { to, slot, grant, turn } => {
                    let origin = Origin::Pool {
                        pool: Arc::clone(self),
                        slot,
                    };
                    let claim = Claim::new(origin, self.slot_key(slot), grant.into_session(), turn);
                    if let Err(Ok(Some(claim))) = to.send(Ok(Some(claim))) {
                        claim.forget();
                        let now = self.gate.clock.now();
                        lock(&self.table).release(slot, turn, now, &mut actions);
                        self.gate.tell_given_up();
                    }
                }
                // Whoever has gone needs no answer.
                Action::Deny { to } => drop(to.send(Ok(None))),
                Action::Fail { to, error } => drop(to.send(Err(error))),
                Action::Done => {}
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.gate.keep_counters(&self.counters());
        let notice = self.notice.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(grant) = notice.grant.take() {
            let marker = self.id.marker(number_of(&self.keys));
            let reply = ReleaseReply::default();
            self.gate
                .engine
                .release(ReleaseRequest::new(marker, Mode::Shared, grant, reply));
        }
    }
}

fn number_of(keys: &[Key]) -> u32 {
    u32::try_from(keys.len()).unwrap_or(u32::MAX)
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("key", &self.key())
            .field("limit", &self.keys.len())
            .finish_non_exhaustive()
    }
}
