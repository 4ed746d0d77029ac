//! Shards: work that is cut into a fixed number of parts, and shared by the workers that are there.
//!
//! Each shard is a slot, so two workers never have the same one at a time. Each worker keeps its fair share: of `n` shards
//! and `m` workers, `n / m` rounded down or up. Workers find each other by a marker that each holds in the server, so
//! those that come and go are seen within a rebalance interval or two.

mod driver;
mod shard;
#[cfg(test)]
mod tests;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::sync::mpsc;

use driver::Driver;
pub use shard::Shard;
pub use tokio_util::sync::CancellationToken;

use crate::{
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
    /// fifth. Default 2 s.
    pub fn with_rebalance_interval(self, rebalance_interval: Duration) -> Self {
        Self {
            rebalance_interval,
            ..self
        }
    }

    /// Takes part from now on, in a task of the runtime that this is called in.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn join(self) -> Shards {
        let (events, coming) = mpsc::unbounded_channel();
        let leaves = CancellationToken::new();
        let driver = Driver::new(self.inner, self.key, self.slots, self.rebalance_interval, events);
        tokio::spawn(driver.run(leaves.clone()));
        Shards { coming, leaves }
    }
}

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
    coming: mpsc::UnboundedReceiver<ShardEvent>,
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
    /// order.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect: no event is missed.
    pub async fn next(&mut self) -> Option<ShardEvent> {
        self.coming.recv().await
    }

    /// Leaves, and resolves when every shard is given up. Those that were gained and not fetched are given up here.
    ///
    /// # Cancel safety
    ///
    /// The worker leaves by the call itself.
    pub fn leave(mut self) -> impl Future<Output = ()> + Send {
        self.leaves.cancel();
        async move { while self.coming.recv().await.is_some() {} }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        self.leaves.cancel();
    }
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").finish_non_exhaustive()
    }
}
