//! The gate as a whole: its shards, the pools of slots, and the engine.

use std::{
    collections::HashMap,
    fmt,
    hash::BuildHasher,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use foldhash::fast::RandomState;
use tokio::sync::{Notify, oneshot};

use super::shard::{ShardHandle, spare};
use crate::{
    clock::Clock,
    engine::{Engine, EngineError, EngineErrorKind, EngineEvents, Grant},
    gate::{Action, Counters, HandOverBound, Table},
    key::Key,
    session::SessionHealth,
    slots::{Pool, PoolId},
    stats::Stats,
    visit::Answer,
};

/// Shards of the gate, so that tasks on different keys seldom meet at one mutex.
const SHARDS: usize = 64;

/// The gate's shards, each behind a mutex, the pools of slots, and the engine.
pub(crate) struct Inner {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Clock,
    pub(crate) hand_over: HandOverBound,
    hasher: RandomState,
    shards: Box<[Shard]>,
    pub(crate) pools: Mutex<HashMap<PoolId, Weak<Pool>>>,
    /// Slots that stay held even when their pool has gone.
    pub(crate) leaked: Mutex<HashMap<PoolId, Vec<(u32, Grant)>>>,
    /// What the pools that have gone had counted.
    gone_pools: Mutex<Counters>,
    /// The sessions that fenced locks are held on, by their numbers.
    fenced: Mutex<HashMap<u64, Arc<SessionHealth>>>,
    closed: AtomicBool,
    /// Notified when the locks are closed.
    closing: Notify,
    /// Notified at each release once the locks are closed.
    given_up: Notify,
}

/// The keys of one shard; the alignment keeps each mutex on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<Table<Answer>>);

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn new(engine: Arc<dyn Engine>, hand_over: HandOverBound) -> Arc<Self> {
        let clock = engine.clock();
        let inner = Arc::new(Self {
            engine,
            hasher: RandomState::default(),
            shards: (0..SHARDS)
                .map(|_| Shard(Mutex::new(Table::new(hand_over, clock.clone()))))
                .collect(),
            clock,
            pools: Mutex::new(HashMap::new()),
            leaked: Mutex::new(HashMap::new()),
            gone_pools: Mutex::new(Counters::default()),
            hand_over,
            fenced: Mutex::default(),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            given_up: Notify::new(),
        });
        inner.engine.attach(EngineEvents::new(Arc::downgrade(&inner)));
        inner
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
        for shard in 0..SHARDS {
            let mut actions = spare();
            each(&mut self.table(shard), &mut actions);
            if !actions.is_empty() {
                self.handle(shard).perform(actions);
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Resolves when the locks are closed.
    pub(crate) async fn closing(&self) {
        let mut closing = pin!(self.closing.notified());
        closing.as_mut().enable();
        if !self.is_closed() {
            closing.await;
        }
    }

    pub(crate) fn tell_given_up(&self) {
        if self.is_closed() {
            self.given_up.notify_waiters();
        }
    }

    pub(super) async fn close(self: &Arc<Self>) {
        self.closed.store(true, Ordering::Release);
        self.closing.notify_waiters();
        let error = EngineError::new(EngineErrorKind::Closed);
        self.for_all_shards(|shard, actions| shard.close(&error, actions));
        for pool in self.live_pools() {
            pool.close(&error);
        }
        loop {
            let mut given_up = pin!(self.given_up.notified());
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
        let locks: usize = self.shards.iter().map(|shard| lock(&shard.0).holders()).sum();
        let pools = self.live_pools();
        let permits: usize = pools.iter().map(|pool| pool.permits()).sum();
        let leaked: usize = lock(&self.leaked)
            .iter()
            .filter(|(id, _)| pools.iter().all(|pool| pool.id() != **id))
            .map(|(_, slots)| slots.iter().filter(|(_, grant)| !grant.session().is_lost()).count())
            .sum();
        let fenced = lock(&self.fenced).values().filter(|session| !session.is_lost()).count();
        locks + permits + leaked + fenced
    }

    /// Counts a fenced guard.
    pub(crate) fn fenced_begins(&self, session: &Arc<SessionHealth>) {
        lock(&self.fenced).insert(session.id(), Arc::clone(session));
    }

    /// Counts it no more.
    pub(crate) fn fenced_ends(&self, session: &SessionHealth) {
        lock(&self.fenced).remove(&session.id());
        self.tell_given_up();
    }

    /// Whether something that was given up is on its way back to the engine.
    fn is_settling(&self) -> bool {
        self.shards.iter().any(|shard| lock(&shard.0).is_settling())
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
            let table = lock(&shard.0);
            keys += table.len();
            total.add(&table.counters);
        }
        for pool in self.live_pools() {
            total.add(&pool.counters());
        }
        Stats::new(keys, self.holders(), &total)
    }

    pub(super) fn table(&self, shard: usize) -> MutexGuard<'_, Table<Answer>> {
        lock(&self.shards[shard].0)
    }

    pub(super) fn shard_of(&self, key: Key) -> usize {
        self.hasher.hash_one(key) as usize % SHARDS
    }

    fn handle(self: &Arc<Self>, shard: usize) -> Arc<ShardHandle> {
        Arc::new(ShardHandle::new(Arc::clone(self), shard))
    }

    /// A handle for each shard.
    pub(super) fn handles(self: &Arc<Self>) -> Arc<[Arc<ShardHandle>]> {
        (0..SHARDS).map(|shard| self.handle(shard)).collect()
    }
}

/// Locks a mutex of ours. A panic elsewhere does not make the state wrong: no user code runs under these mutexes.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
