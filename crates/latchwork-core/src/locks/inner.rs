//! The async shell of the gate: it does what the gate says, once the gate's mutex is free.

use std::{
    cell::Cell,
    collections::HashMap,
    fmt,
    hash::BuildHasher,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use foldhash::fast::RandomState;
use tokio::sync::{Notify, oneshot};

use crate::{
    claim::{Claim, Origin},
    clock::Clock,
    engine::{
        AcquireReply, AcquireRequest, Attempt, Engine, EngineError, EngineErrorKind, EngineEvents, Grant, ReleaseReply,
        ReleaseRequest, Settle,
    },
    gate::{Action, Counters, Entered, HandOverBound, Released, Table, Want},
    key::Key,
    mode::Mode,
    session::{HoldState, SessionHealth},
    slots::{Pool, PoolId},
    stats::Stats,
    visit::{Answer, Entry},
};

/// Shards of the gate, so that tasks on different keys seldom meet at one mutex.
const SHARDS: usize = 16;

/// The gate's shards, each behind a mutex, the pools of slots, and the engine.
pub(crate) struct Inner {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Clock,
    pub(crate) hand_over: HandOverBound,
    hasher: RandomState,
    shards: Box<[Mutex<Table<Answer>>]>,
    pub(crate) pools: Mutex<HashMap<PoolId, Weak<Pool>>>,
    /// Slots that stay held even when their pool has gone.
    pub(crate) leaked: Mutex<HashMap<PoolId, Vec<(u32, Grant)>>>,
    /// What the pools that have gone had counted.
    gone_pools: Mutex<Counters>,
    closed: AtomicBool,
    /// Notified at each release once the locks are closed.
    given_up: Notify,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn new(engine: Arc<dyn Engine>, hand_over: HandOverBound) -> Arc<Self> {
        let inner = Arc::new(Self {
            clock: engine.clock(),
            engine,
            hasher: RandomState::default(),
            shards: (0..SHARDS).map(|_| Mutex::new(Table::new(hand_over))).collect(),
            pools: Mutex::new(HashMap::new()),
            leaked: Mutex::new(HashMap::new()),
            gone_pools: Mutex::new(Counters::default()),
            hand_over,
            closed: AtomicBool::new(false),
            given_up: Notify::new(),
        });
        inner.engine.attach(EngineEvents::new(Arc::downgrade(&inner)));
        inner
    }

    /// Lets one in who wants a key; the receiver is there if he has to wait.
    pub(crate) fn enter(self: &Arc<Self>, key: Key, mode: Mode, want: Want) -> Entry {
        let mut receiver = None;
        let mut actions = spare();
        let now = self.clock.now();
        let mut shard = self.shard(key);
        // Under the mutex that closing takes after it has set the flag, so that it finds all who came in.
        if self.is_closed() {
            return Entry::Answered(Err(EngineError::new(EngineErrorKind::Closed)));
        }
        let entered = shard.enter(
            key,
            mode,
            want,
            now,
            || {
                let (to, from) = oneshot::channel();
                receiver = Some(from);
                to
            },
            &mut actions,
        );
        drop(shard);
        let asks = !actions.is_empty();
        self.perform(actions);
        match entered {
            Entered::Joined { grant, turn } => Entry::Answered(Ok(Some(self.claim(key, grant, turn)))),
            // In an outage, that somebody else waits for a key says nothing about it.
            Entered::Denied if !self.is_held_here(key) => Entry::Answered(self.engine.outage().map_or(Ok(None), Err)),
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
        let now = self.clock.now();
        self.shard(key).leave(key, ticket, now, &mut actions);
        self.perform(actions);
    }

    pub(crate) fn nudge(self: &Arc<Self>, key: Key, ticket: u64) {
        let mut actions = spare();
        let now = self.clock.now();
        self.shard(key).nudge(key, ticket, now, &mut actions);
        self.perform(actions);
    }

    /// Gives a hold up. With a `waiter`, tells it what became of it.
    pub(crate) fn release(
        self: &Arc<Self>,
        key: Key,
        grant: &Grant,
        turn: u64,
        waiter: Option<oneshot::Sender<Result<bool, EngineError>>>,
    ) {
        let mut actions = spare();
        let now = self.clock.now();
        let held = waiter.is_some() && grant.session().state() == HoldState::Held;
        let released = self.shard(key).release(key, turn, now, &mut actions);
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
        let now = self.clock.now();
        self.shard(key).answered(key, flight, answer, now, &mut actions);
        self.perform(actions);
    }

    pub(crate) fn settled(self: &Arc<Self>, key: Key, turn: u64) {
        let mut actions = spare();
        self.shard(key).settled(key, turn, &mut actions);
        self.perform(actions);
        self.tell_given_up();
    }

    pub(crate) fn session_lost(self: &Arc<Self>, session: &SessionHealth) {
        self.for_all_shards(|shard, actions| shard.session_lost(session, actions));
        for pool in self.live_pools() {
            pool.session_lost(session);
        }
        self.tell_given_up();
    }

    pub(crate) fn server_silent(self: &Arc<Self>, error: &EngineError) {
        self.for_all_shards(|shard, actions| shard.server_silent(error, actions));
        for pool in self.live_pools() {
            pool.server_silent(error);
        }
    }

    fn for_all_shards(self: &Arc<Self>, mut each: impl FnMut(&mut Table<Answer>, &mut Vec<Action<Answer>>)) {
        for shard in &self.shards {
            let mut actions = spare();
            each(&mut lock(shard), &mut actions);
            self.perform(actions);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn tell_given_up(&self) {
        if self.is_closed() {
            self.given_up.notify_waiters();
        }
    }

    pub(super) async fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::Release);
        let error = EngineError::new(EngineErrorKind::Closed);
        self.for_all_shards(|shard, actions| shard.close(&error, actions));
        for pool in self.live_pools() {
            pool.close(&error);
        }
        loop {
            let mut given_up = std::pin::pin!(self.given_up.notified());
            given_up.as_mut().enable();
            if self.holders() == 0 && !self.is_settling() {
                break;
            }
            given_up.await;
        }
        self.end_engine().await;
    }

    pub(super) async fn end_engine(&self) {
        let (done, ended) = oneshot::channel();
        self.engine.close(done);
        // An engine that drops the sender has ended too.
        let _ = ended.await;
    }

    pub(super) fn holders(&self) -> usize {
        let locks: usize = self.shards.iter().map(|shard| lock(shard).holders()).sum();
        let pools = self.live_pools();
        let permits: usize = pools.iter().map(|pool| pool.permits()).sum();
        let leaked: usize = lock(&self.leaked)
            .iter()
            .filter(|(id, _)| pools.iter().all(|pool| pool.id() != **id))
            .map(|(_, slots)| slots.iter().filter(|(_, grant)| !grant.session().is_lost()).count())
            .sum();
        locks + permits + leaked
    }

    /// Whether something that was given up is on its way back to the engine.
    fn is_settling(&self) -> bool {
        self.shards.iter().any(|shard| lock(shard).is_settling())
            || self.live_pools().iter().any(|pool| pool.is_settling())
    }

    /// Keeps what a pool has counted when it goes.
    pub(crate) fn keep_counters(&self, counters: &Counters) {
        lock(&self.gone_pools).add(counters);
    }

    fn live_pools(&self) -> Vec<Arc<Pool>> {
        lock(&self.pools).values().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn stats(&self) -> Stats {
        let mut total = *lock(&self.gone_pools);
        let mut keys = 0;
        for shard in &self.shards {
            let shard = lock(shard);
            keys += shard.len();
            total.add(&shard.counters);
        }
        for pool in self.live_pools() {
            total.add(&pool.counters());
        }
        Stats::new(keys, self.holders(), &total)
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Table<Answer>> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % SHARDS])
    }

    fn is_held_here(&self, key: Key) -> bool {
        self.shard(key).is_held(key)
    }

    fn claim(self: &Arc<Self>, key: Key, grant: Grant, turn: u64) -> Claim {
        Claim::new(Origin::Gate(Arc::clone(self)), key, grant, turn)
    }

    fn perform(self: &Arc<Self>, actions: Vec<Action<Answer>>) {
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
                        self.shard(key).settled(key, turn, &mut actions);
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
            self.shard(key).sent(key, flight, actions);
        }
    }

    fn give(self: &Arc<Self>, to: Answer, key: Key, grant: Grant, turn: u64, actions: &mut Vec<Action<Answer>>) {
        if let Err(Ok(Some(claim))) = to.send(Ok(Some(self.claim(key, grant, turn)))) {
            // Taken apart and not dropped: a long row of waiters that have gone must not recurse.
            claim.forget();
            let now = self.clock.now();
            self.shard(key).release(key, turn, now, actions);
            self.tell_given_up();
        }
    }
}

/// An empty list; also on a thread that is ending.
fn spare() -> Vec<Action<Answer>> {
    SPARE.try_with(Cell::take).unwrap_or_default()
}

thread_local! {
    /// A list to fill, so that not every change of the gate allocates one.
    static SPARE: Cell<Vec<Action<Answer>>> = const { Cell::new(Vec::new()) };
}

/// Locks a mutex of ours. A panic elsewhere does not make the state wrong: no user code runs under these mutexes.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
