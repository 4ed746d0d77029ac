//! The front of the library.

mod inner;
mod shard;

use std::{fmt, sync::Arc, time::Duration};

pub(crate) use inner::{Inner, lock};
pub(crate) use shard::ShardHandle;

use crate::{
    acquire::{AcquireBuilder, TryAcquire},
    engine::Engine,
    error::CloseError,
    fence::FencedBuilder,
    gate::HandOverBound,
    key::{IntoKey, Key, KeyError, Namespace},
    leader::LeaderBuilder,
    once::OnceBuilder,
    shards::ShardsBuilder,
    slots::{Slots, SlotsError},
    stats::Stats,
};

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
    handles: Arc<[Arc<ShardHandle>]>,
    namespace: Namespace,
}

impl Locks {
    /// Puts the gate in front of an engine.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, options: LocksOptions) -> Self {
        let inner = Inner::new(engine, options.hand_over);
        Self {
            handles: inner.handles(),
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
            handles: Arc::clone(&self.handles),
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
        AcquireBuilder::new(self.at(key))
    }

    /// Tries once to acquire a key: `Ok(None)` if others hold it.
    ///
    /// The future sends one request when it is first polled. A key that this process holds already is not asked for.
    pub fn try_acquire(&self, key: impl IntoKey) -> TryAcquire {
        TryAcquire::new(self.at(key))
    }

    /// Begins to acquire a key [fenced](crate::fence), on a connection of its own. Nothing happens before the builder was
    /// given a limit and is awaited.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use latchwork_core::Locks;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = Locks::in_memory();
    /// let guard = locks.acquire_fenced("billing").within(Duration::from_secs(10)).await?;
    /// assert!(guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_fenced(&self, key: impl IntoKey) -> FencedBuilder {
        FencedBuilder::new(Arc::clone(&self.inner), key.into_key(&self.namespace))
    }

    /// Begins to campaign for a [leadership](crate::leader): of all processes that campaign under this name, one leads at a
    /// time. Nothing happens before [`LeaderBuilder::campaign`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use latchwork_core::{Locks, leader::LeaderState};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = Locks::in_memory();
    /// let candidate = locks.leader("billing").campaign()?;
    /// let mut states = candidate.watch();
    /// states.wait_for(|state| matches!(state, LeaderState::Leader(_))).await?;
    /// assert!(candidate.is_leader());
    /// candidate.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn leader(&self, name: impl IntoKey) -> LeaderBuilder {
        LeaderBuilder::new(Arc::clone(&self.inner), name.into_key(&self.namespace))
    }

    /// Begins work that is done [once](crate::once): here, if nobody else is at it. Nothing happens before
    /// [`OnceBuilder::run`] is awaited.
    ///
    /// # Examples
    ///
    /// ```
    /// # use latchwork_core::{Locks, once::Outcome};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = Locks::in_memory();
    /// match locks.once("send the mails").run(async { "sent" }).await? {
    ///     Outcome::Ran(done) => println!("{done}"),
    ///     Outcome::Skipped(why) => println!("skipped: {why}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn once(&self, name: impl IntoKey) -> OnceBuilder {
        let label = name.label();
        OnceBuilder::new(Arc::clone(&self.inner), self.at(name), label)
    }

    /// A pool of `limit` slots under one name, shared by all processes that name it: at most `limit` permits at once.
    ///
    /// # Errors
    ///
    /// [`SlotsError::NoSlots`] for a limit of zero, [`SlotsError::TooManySlots`] for one above
    /// [`MAX_SLOTS`](crate::slots::MAX_SLOTS), [`SlotsError::OtherLimit`] if this process uses the pool with another
    /// limit already, [`SlotsError::Key`] if the name does not make a key.
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

    /// Begins to take part in work that is cut into so many [shards](crate::shards), shared by all workers that name it.
    /// Nothing happens before [`ShardsBuilder::join`].
    ///
    /// # Errors
    ///
    /// As for [`Locks::slots`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use latchwork_core::{Locks, shards::ShardEvent};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = Locks::in_memory();
    /// let mut shards = locks.shards("mailboxes", 4)?.join();
    /// let Some(ShardEvent::Gained(shard)) = shards.next().await else {
    ///     panic!("nobody else is there");
    /// };
    /// assert!(shard.index() < 4 && shard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn shards(&self, name: impl IntoKey, shards: u32) -> Result<ShardsBuilder, SlotsError> {
        ShardsBuilder::new(&self.inner, name.into_key(&self.namespace)?, shards)
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
    /// Whoever awaits this beside a guard of their own, or inside work that runs under a lock, waits for themselves:
    /// [`close_within`](Self::close_within) ends that.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the locks closed for new acquires; calling it again goes on waiting.
    pub async fn close(&self) {
        self.inner.close().await;
    }

    /// Closes like [`Locks::close`], but ends the sessions when the limit has run out. Guards that are left are lost.
    ///
    /// # Cancel safety
    ///
    /// As for [`Locks::close`]; a limit that has not run out by then ends no session.
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

    pub(crate) fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.inner)
    }

    /// Resolves when the locks are closed.
    pub(crate) async fn closing(&self) {
        self.inner.closing().await;
    }

    /// A key, and the way to its shard.
    fn at(&self, key: impl IntoKey) -> Result<(Arc<ShardHandle>, Key), KeyError> {
        let key = key.into_key(&self.namespace)?;
        Ok((Arc::clone(&self.handles[self.inner.shard_of(key)]), key))
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

#[cfg(test)]
mod tests;
