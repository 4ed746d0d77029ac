//! Shards: work that is cut into a fixed number of parts, and shared by the workers that are there.
//!
//! Each shard is a slot, so two workers never have the same one at a time. Each worker keeps its fair share: of `n` shards
//! and `m` workers, `n / m` rounded down or up. Workers find each other by a marker that each holds in the server, so
//! those that come and go are seen within a rebalance interval or two.
//!
//! A worker that is slow to read holds nobody up: a shard that it has gained and not fetched is taken back when it is
//! another's, and neither the gain nor the loss is told. One that it has fetched is its own until it drops the value.
//!
//! # Limits
//!
//! - A worker that is stopped, or cut off from its server, keeps its shards until its session is given up there, as a
//!   [leader](crate::leader) does; by then it has ceased to believe in them. The shards of one that is killed are free at once.
//! - A shard is free when the session of its holder has ended. A statement that the holder has sent on another connection,
//!   of its pool, may still run then: what must not happen twice is for the database to see to, by a row lock, a unique key
//!   or a locked transaction.

mod desk;
mod driver;
mod shard;
#[cfg(test)]
mod tests;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use desk::Desk;
use driver::Driver;
pub use shard::Shard;
pub use tokio_util::sync::CancellationToken;

use crate::{
    AcquireError,
    key::Key,
    locks::Inner,
    slots::{Slots, SlotsError},
};

/// Collects how a worker takes part. It does with [`join`](Self::join).
#[derive(Debug)]
#[must_use = "nobody takes part before this is told to"]
pub struct ShardsBuilder {
    inner: Arc<Inner>,
    key: Key,
    slots: Slots,
    rebalance_interval: Duration,
}

impl ShardsBuilder {
    pub(crate) fn new(inner: &Arc<Inner>, key: Key, shards: u32) -> Result<Self, SlotsError> {
        Ok(Self {
            inner: Arc::clone(inner),
            key,
            slots: Slots::named(inner, key.derive("shards", 0), shards)?,
            rebalance_interval: Duration::from_secs(2),
        })
    }

    /// Sets how often a worker looks who else is there, and for shards that are free where it lacks some, give or take a
    /// fifth. Default 2 s; at least 10 ms, at most an hour, and what is beyond is taken as that.
    pub fn with_rebalance_interval(self, rebalance_interval: Duration) -> Self {
        Self {
            rebalance_interval: rebalance_interval.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL),
            ..self
        }
    }

    /// Takes part from now on, in a task of the runtime that this is called in.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn join(self) -> Shards {
        let desk = Arc::new(Desk::default());
        let leaves = CancellationToken::new();
        let interval = self.rebalance_interval;
        let driver = Driver::new(self.inner, self.key, self.slots, interval, Arc::clone(&desk));
        tokio::spawn(driver.run(leaves.clone()));
        Shards { desk, leaves }
    }
}

const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
const LONGEST_INTERVAL: Duration = Duration::from_secs(3_600);

/// The shards of one worker, as they are gained and lost. Dropped, it leaves: what it had is free for others once each
/// [`Shard`] is dropped.
///
/// # Examples
///
/// ```
/// use latchwork_core::{Locks, shards::ShardEvent};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = Locks::in_memory();
/// let mut shards = locks.shards("mailboxes", 4)?.join();
/// let mut at_work = Vec::new();
/// while let Some(event) = shards.next().await {
///     match event {
///         ShardEvent::Gained(shard) => at_work.push(tokio::spawn(async move {
///             // Work on it until it is to be given up; it is given up when it is dropped.
///             shard.revoked().await;
///         })),
///         ShardEvent::Lost(shard) => println!("shard {shard} is not ours any more"),
///         _ => {}
///     }
/// #   if at_work.len() == 4 { break }
/// }
/// shards.leave().await;
/// # Ok(())
/// # }
/// ```
pub struct Shards {
    desk: Arc<Desk>,
    leaves: CancellationToken,
}

/// What happens to the shards of a worker.
#[derive(Debug)]
#[non_exhaustive]
pub enum ShardEvent {
    /// This worker has the shard, for as long as it keeps the value.
    Gained(Shard),
    /// The shard is to be given up, or was lost or dropped. It is not gained again before its value is dropped.
    Lost(u32),
}

impl Shards {
    /// Waits for the next event; `None` once the worker has left, or the locks are closed. All events of a shard are in
    /// order. A shard that was gained and is to be given up before it was fetched here is not told of.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect: no event is missed.
    pub async fn next(&mut self) -> Option<ShardEvent> {
        self.desk.next().await
    }

    /// Why the worker could not look after its share the last time, as by a server that can't be reached, or one that has
    /// no room for its locks; `None` once it could. It keeps what it has meanwhile, and tries again each interval.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<AcquireError>> {
        self.desk.failure()
    }

    /// Leaves, and resolves when every shard is given up; a server that does not answer is waited for until its session
    /// is given up, for 15 s by default. Shards that were gained and not fetched are given up here.
    ///
    /// By the call itself every [`Shard`] is revoked. Whoever has one drops it before they await this.
    ///
    /// # Cancel safety
    ///
    /// The worker leaves by the call itself.
    pub fn leave(self) -> impl Future<Output = ()> + Send {
        let desk = Arc::clone(&self.desk);
        // Leaves.
        drop(self);
        async move { while desk.next().await.is_some() {} }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.desk.close();
        self.leaves.cancel();
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").finish_non_exhaustive()
    }
}
