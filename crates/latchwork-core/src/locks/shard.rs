//! The gate's shell for the keys of one shard: it does what the gate says, once the shard's mutex is free.

use std::{
    cell::Cell,
    ops::Deref,
    sync::{Arc, MutexGuard},
};

use tokio::sync::oneshot;

use super::inner::Inner;
use crate::{
    claim::{Claim, Origin},
    engine::{
        AcquireReply, AcquireRequest, Attempt, EngineError, EngineErrorKind, Grant, ReleaseReply, ReleaseRequest,
        Settle,
    },
    gate::{Action, Entered, Released, Table, Want},
    key::Key,
    mode::Mode,
    session::{HoldState, SessionHealth},
    visit::{Answer, Entry},
};

/// A way to one shard of the gate. Guards and requests count their references here, a shard's neighbours among
/// themselves: one count for the whole gate would be written by every core for every lock.
///
/// The alignment keeps each count on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ShardHandle {
    gate: Arc<Inner>,
    shard: usize,
}

impl Deref for ShardHandle {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.gate
    }
}

impl ShardHandle {
    pub(super) const fn new(gate: Arc<Inner>, shard: usize) -> Self {
        Self { gate, shard }
    }

    fn table(&self) -> MutexGuard<'_, Table<Answer>> {
        self.gate.table(self.shard)
    }

    /// Lets one in who wants a key; the receiver is there if he has to wait.
    pub(crate) fn enter(self: &Arc<Self>, key: Key, mode: Mode, want: Want) -> Entry {
        let mut receiver = None;
        let mut actions = spare();
        let mut table = self.table();
        // Under the mutex that closing takes after it has set the flag, so that it finds all who came in.
        if self.is_closed() {
            return Entry::Answered(Err(EngineError::new(EngineErrorKind::Closed)));
        }
        let entered = table.enter(
            key,
            mode,
            want,
            || {
                let (to, from) = oneshot::channel();
                receiver = Some(from);
                to
            },
            &mut actions,
        );
        drop(table);
        let asks = !actions.is_empty();
        self.perform(actions);
        match entered {
            Entered::Joined { grant, turn } => Entry::Answered(Ok(Some(self.claim(key, grant, turn)))),
            // In an outage, that somebody else waits for a key says nothing about it.
            Entered::Denied if !self.table().is_held(key) => {
                Entry::Answered(self.engine.outage().map_or(Ok(None), Err))
            }
            Entered::Denied => Entry::Answered(Ok(None)),
            Entered::Failed(error) => Entry::Answered(Err(error)),
            Entered::Queued { ticket } => {
                // One attempt must not wait for an outage to end behind somebody more patient.
                if want == Want::Try
                    && !asks
                    && let Some(error) = self.engine.outage()
                {
                    self.leave(key, ticket);
                    return Entry::Answered(Err(error));
                }
                Entry::Waits {
                    ticket,
                    answer: receiver.expect("whoever waits was given a way to be answered"),
                }
            }
        }
    }

    pub(crate) fn leave(self: &Arc<Self>, key: Key, ticket: u64) {
        let mut actions = spare();
        self.table().leave(key, ticket, &mut actions);
        self.perform(actions);
    }

    pub(crate) fn nudge(self: &Arc<Self>, key: Key, ticket: u64) {
        let mut actions = spare();
        self.table().nudge(key, ticket, &mut actions);
        self.perform(actions);
    }

    /// Gives a hold up. With a `waiter`, tells it what became of it.
    pub(crate) fn release(
        self: &Arc<Self>,
        key: Key,
        session: &SessionHealth,
        turn: u64,
        waiter: Option<oneshot::Sender<Result<bool, EngineError>>>,
    ) {
        let mut actions = spare();
        let held = waiter.is_some() && session.state() == HoldState::Held;
        let released = self.table().release(key, turn, &mut actions);
        match (released, waiter) {
            (Released::Sent, waiter) => self.perform_with(actions, waiter),
            (Released::Kept | Released::Gone, waiter) => {
                if let Some(waiter) = waiter {
                    // Whoever asked may have gone.
                    let _ = waiter.send(Ok(held && released == Released::Kept));
                }
                self.perform(actions);
            }
        }
        self.tell_given_up();
    }

    pub(crate) fn answered(self: &Arc<Self>, key: Key, flight: u64, answer: Result<Option<Grant>, EngineError>) {
        let mut actions = spare();
        self.table().answered(key, flight, answer, &mut actions);
        self.perform(actions);
    }

    pub(crate) fn settled(self: &Arc<Self>, key: Key, turn: u64) {
        let mut actions = spare();
        self.table().settled(key, turn, &mut actions);
        self.perform(actions);
        self.tell_given_up();
    }

    fn claim(self: &Arc<Self>, key: Key, grant: Grant, turn: u64) -> Claim {
        Claim::new(Origin::Gate(Arc::clone(self)), key, grant.into_session(), turn)
    }

    pub(super) fn perform(self: &Arc<Self>, actions: Vec<Action<Answer>>) {
        self.perform_with(actions, None);
    }

    /// Carries actions out. The `waiter` is told what becomes of the first release among them.
    fn perform_with(
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
                Action::Acquire {
                    key,
                    mode,
                    attempt,
                    flight,
                } => self.ask(key, mode, attempt, flight, &mut actions),
                Action::Abandon { key, flight } => self.engine.abandon(key, flight),
                Action::Release {
                    key,
                    mode,
                    grant,
                    turn,
                    settle,
                } => {
                    let reply = settle.then(|| Settle::Gate(Arc::clone(self), key, turn));
                    let reply = ReleaseReply::new(reply, waiter.take());
                    self.engine.release(ReleaseRequest::new(key, mode, grant, reply));
                    if !settle {
                        self.table().settled(key, turn, &mut actions);
                        self.tell_given_up();
                    }
                }
                Action::Give { to, key, grant, turn } => self.give(to, key, grant, turn, &mut actions),
                // Whoever has gone needs no answer.
                Action::Deny { to } => drop(to.send(Ok(None))),
                Action::Fail { to, error } => drop(to.send(Err(error))),
                Action::Done => {}
            }
        }
        actions.clear();
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(|spare| spare.set(actions));
    }

    fn ask(self: &Arc<Self>, key: Key, mode: Mode, attempt: Attempt, flight: u64, actions: &mut Vec<Action<Answer>>) {
        let reply = AcquireReply::new(Arc::clone(self), key, flight);
        self.engine.acquire(AcquireRequest::new(key, mode, attempt, reply));
        if matches!(attempt, Attempt::Queue { .. } | Attempt::Poll) {
            self.table().sent(key, flight, actions);
        }
    }

    fn give(self: &Arc<Self>, to: Answer, key: Key, grant: Grant, turn: u64, actions: &mut Vec<Action<Answer>>) {
        if let Err(Ok(Some(claim))) = to.send(Ok(Some(self.claim(key, grant, turn)))) {
            // Taken apart and not dropped: a long row of waiters that have gone must not recurse.
            claim.forget();
            self.table().release(key, turn, actions);
            self.tell_given_up();
        }
    }
}

/// An empty list; also on a thread that is ending.
pub(super) fn spare() -> Vec<Action<Answer>> {
    SPARE.try_with(Cell::take).unwrap_or_default()
}

thread_local! {
    /// A list to fill, so that not every change of the gate allocates one.
    static SPARE: Cell<Vec<Action<Answer>>> = const { Cell::new(Vec::new()) };
}
