//! The front of the library, and the async shell of the gate.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, oneshot};

use crate::{
    acquire::{AcquireBuilder, TryAcquire},
    claim::{Claim, Owner},
    clock::Clock,
    engine::{
        AcquireReply, AcquireRequest, Attempt, Engine, EngineError, EngineErrorKind, EngineEvents, Grant, ReleaseReply,
        ReleaseRequest, Settle,
    },
    error::CloseError,
    gate::{Action, Counters, Entered, HandOverBound, Released, Table, Want},
    key::{IntoKey, Key, Namespace},
    mode::Mode,
    session::{HoldState, SessionHealth},
    slots::{Pool, PoolId, Slots, SlotsError},
    stats::Stats,
    visit::{Answer, Entry},
};

/// Shards of the gate, so that tasks on different keys seldom meet at one mutex.
const SHARDS: usize = 16;

/// Plain values that [`Locks`] are made with.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LocksOptions {
    /// What names are mixed with. Default: the unnamed namespace.
    pub namespace: Namespace,
    /// How long a process may hand a key from one local holder to the next.
    pub hand_over: HandOverBound,
}

/// Acquires locks on one lock server.
///
/// A service makes one and clones it freely: all clones share the sessions and the local gate. What they acquire is
/// given up by its guard, by [`Locks::close`], or by the end of the process.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork_core::Locks;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let locks = Locks::in_memory();
/// let guard = locks.acquire("nightly-billing").within(Duration::from_secs(5)).await?;
/// assert!(locks.try_acquire("nightly-billing").await?.is_none());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Locks {
    inner: Arc<Inner>,
    namespace: Namespace,
}

impl Locks {
    /// Puts the gate in front of an engine.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, options: LocksOptions) -> Self {
        let inner = Arc::new(Inner {
            clock: engine.clock(),
            engine,
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::new(Table::new(options.hand_over))).collect(),
            pools: Mutex::new(HashMap::new()),
            leaked: Mutex::new(HashMap::new()),
            gone_pools: Mutex::new(Counters::default()),
            hand_over: options.hand_over,
            closed: AtomicBool::new(false),
            given_up: Notify::new(),
        });
        inner.engine.attach(EngineEvents::new(Arc::downgrade(&inner)));
        Self {
            inner,
            namespace: options.namespace,
        }
    }

    /// Locks inside this process, for tests and for services that run once. They exclude nobody in other processes.
    #[must_use]
    pub fn in_memory() -> Self {
        crate::memory::MemoryServer::new().locks()
    }

    /// The same locks, with names taken in another namespace.
    #[must_use]
    pub fn with_namespace(&self, namespace: Namespace) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            namespace,
        }
    }

    /// The namespace that names are taken in.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Begins to acquire a key, waiting for it if others hold it. Nothing happens before the builder was given a limit
    /// and is awaited.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use latchwork_core::Locks;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = Locks::in_memory();
    /// let reader = locks.acquire(["report", "2026-11"]).shared().within(Duration::from_secs(1)).await?;
    /// assert!(reader.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Without a limit it does not compile, so that nobody waits for ever by accident:
    ///
    /// ```compile_fail
    /// # async fn f(locks: latchwork_core::Locks) {
    /// locks.acquire("nightly-billing").await;
    /// # }
    /// ```
    pub fn acquire(&self, key: impl IntoKey) -> AcquireBuilder {
        AcquireBuilder::new(Arc::clone(&self.inner), key.into_key(&self.namespace))
    }

    /// Tries once to acquire a key: `Ok(None)` if others hold it.
    ///
    /// The future sends one request when it is first polled. A key that this process holds already is not asked for.
    pub fn try_acquire(&self, key: impl IntoKey) -> TryAcquire {
        TryAcquire::new(Arc::clone(&self.inner), key.into_key(&self.namespace))
    }

    /// A pool of `limit` slots under one name, shared by all processes that name it: at most `limit` permits at once.
    ///
    /// # Errors
    ///
    /// [`SlotsError::NoSlots`] for a limit of zero, [`SlotsError::OtherLimit`] if this process uses the pool with
    /// another limit already, [`SlotsError::Key`] if the name does not make a key.
    ///
    /// # Examples
    ///
    /// ```
    /// # use latchwork_core::Locks;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = Locks::in_memory();
    /// let model = locks.slots("model", 2)?;
    /// let first = model.try_acquire().await?.expect("a free slot");
    /// let second = model.try_acquire().await?.expect("a free slot");
    /// assert!(model.try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn slots(&self, name: impl IntoKey, limit: u32) -> Result<Slots, SlotsError> {
        Slots::named(&self.inner, name.into_key(&self.namespace)?, limit)
    }

    /// A pool of slots whose keys are the pairs `(resource, 0)` to `(resource, limit - 1)`, for sharing it with
    /// programs that number their slots like this.
    ///
    /// # Errors
    ///
    /// As for [`Locks::slots`].
    pub fn slots_of_resource(&self, resource: i32, limit: u32) -> Result<Slots, SlotsError> {
        Slots::of_resource(&self.inner, resource, limit)
    }

    /// What the gate has counted since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats()
    }

    /// Closes: refuses new acquires, waits until every guard and permit was given up, finishes their releases, and ends
    /// the sessions. Those who wait get [`AcquireError::Closed`](crate::AcquireError::Closed).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the locks closed for new acquires; calling it again goes on waiting.
    pub async fn close(&self) {
        self.inner.close().await;
    }

    /// Closes like [`Locks::close`], but ends the sessions when the limit has run out. Guards that are left are lost.
    ///
    /// # Errors
    ///
    /// [`CloseError`] with the number of guards and permits that were left.
    pub async fn close_within(&self, limit: Duration) -> Result<(), CloseError> {
        if tokio::time::timeout(limit, self.inner.close()).await.is_ok() {
            return Ok(());
        }
        let holders = self.inner.holders();
        self.inner.end_engine().await;
        Err(CloseError::new(holders, limit))
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks")
            .field("engine", &self.inner.engine)
            .field("namespace", &self.namespace)
            .finish()
    }
}

/// The gate's shell: its shards, each behind a mutex, and the engine.
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
    /// Lets one in who wants a key; the receiver is there if he has to wait.
    pub(crate) fn enter(self: &Arc<Self>, key: Key, mode: Mode, want: Want) -> Entry {
        let mut receiver = None;
        let mut actions = Vec::new();
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
        let mut actions = Vec::new();
        let now = self.clock.now();
        self.shard(key).leave(key, ticket, now, &mut actions);
        self.perform(actions);
    }

    pub(crate) fn nudge(self: &Arc<Self>, key: Key, ticket: u64) {
        let mut actions = Vec::new();
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
        let mut actions = Vec::new();
        let now = self.clock.now();
        let held = grant.session().state() == HoldState::Held;
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
        let mut actions = Vec::new();
        let now = self.clock.now();
        self.shard(key).answered(key, flight, answer, now, &mut actions);
        self.perform(actions);
    }

    pub(crate) fn settled(self: &Arc<Self>, key: Key, turn: u64) {
        let mut actions = Vec::new();
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
            let mut actions = Vec::new();
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

    async fn close(self: &Arc<Self>) {
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

    async fn end_engine(&self) {
        let (done, ended) = oneshot::channel();
        self.engine.close(done);
        // An engine that drops the sender has ended too.
        let _ = ended.await;
    }

    fn holders(&self) -> usize {
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

    fn stats(&self) -> Stats {
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

    fn claim(self: &Arc<Self>, key: Key, grant: Grant, turn: u64) -> Claim {
        Claim::new(Owner::Gate(Arc::clone(self)), key, grant, turn)
    }

    fn perform(self: &Arc<Self>, actions: Vec<Action<Answer>>) {
        if !actions.is_empty() {
            self.perform_with(actions, None);
        }
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
                } => {
                    let reply = AcquireReply::new(Arc::clone(self), key, flight);
                    self.engine.acquire(AcquireRequest::new(key, mode, attempt, reply));
                    if matches!(attempt, Attempt::Queue { .. } | Attempt::Poll) {
                        self.shard(key).sent(key, flight, &mut actions);
                    }
                }
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
                Action::Give { to, key, grant, turn } => {
                    if let Err(Ok(Some(claim))) = to.send(Ok(Some(self.claim(key, grant, turn)))) {
                        // Taken apart and not dropped: a long row of waiters that have gone must not recurse.
                        claim.forget();
                        let now = self.clock.now();
                        self.shard(key).release(key, turn, now, &mut actions);
                        self.tell_given_up();
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

/// Locks a mutex of ours. A panic elsewhere does not make the state wrong: no user code runs under these mutexes.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
