//! Slots: at most so many at once, over all processes.

mod permit;
mod pool;
mod slot;
mod table;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

pub use permit::Permit;
pub(crate) use pool::{Pool, PoolId};

use crate::{
    error::AcquireError,
    key::{Key, KeyError},
    locks::Inner,
    visit::{Door, Limit, Visit},
};

/// The most slots that a pool may have.
pub const MAX_SLOTS: u32 = 16_384;

/// Why there is no such pool of slots.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SlotsError {
    /// The name does not make a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A pool of no slots would let nobody in.
    #[error("a pool of 0 slots would let nobody in: give it at least 1")]
    NoSlots,
    /// More slots than [`MAX_SLOTS`].
    #[error("a pool of {limit} slots is too large: at most {MAX_SLOTS}")]
    TooManySlots {
        /// The number asked for.
        limit: u32,
    },
    /// This process uses the pool with another number of slots already.
    #[error("this process uses the pool with {existing} slots already, not {limit}: use one number everywhere")]
    OtherLimit {
        /// The number in use.
        existing: u32,
        /// The number asked for.
        limit: u32,
    },
}

/// A pool of slots under one name: at most `limit` permits at once, over all processes that use the pool.
///
/// Each slot is a key of its own, and which one was acquired is told by [`Permit::slot`]. All clones, and all pools of
/// the same name in a process, are one. Waiters of one process are served first-in first-out; between processes no
/// order is promised.
///
/// All processes should give the same limit. Each announces its own in the server, so that another is seen, logged,
/// and told by [`Slots::other_limits`]; meanwhile the largest of them holds.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use latchwork_core::Locks;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = Locks::in_memory();
/// let renders = locks.slots("renders", 3)?;
/// let permit = renders.acquire().within(Duration::from_secs(2)).await?;
/// assert!(permit.slot() < 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Slots {
    pool: Arc<Pool>,
}

impl Slots {
    pub(crate) fn named(gate: &Arc<Inner>, key: Key, limit: u32) -> Result<Self, SlotsError> {
        Pool::find_or_make(gate, PoolId::Named(key), limit).map(|pool| Self { pool })
    }

    pub(crate) fn of_resource(gate: &Arc<Inner>, resource: i32, limit: u32) -> Result<Self, SlotsError> {
        Pool::find_or_make(gate, PoolId::Resource(resource), limit).map(|pool| Self { pool })
    }

    /// The number of slots.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.pool.limit()
    }

    /// The key of one slot, as the inspection shows it. Slots are numbered from 0.
    #[must_use]
    pub fn slot_key(&self, slot: u32) -> Key {
        self.pool.slot_key(slot)
    }

    /// Other limits that other processes have announced for this pool, as far as this process has seen. It looks when
    /// it first uses the pool, and again with an acquire every 30 s.
    #[must_use]
    pub fn other_limits(&self) -> Vec<u32> {
        self.pool.other_limits()
    }

    /// Begins to acquire a permit, waiting for one if all slots are taken. Nothing happens before the builder was given
    /// a limit and is awaited.
    pub fn acquire(&self) -> PermitBuilder {
        PermitBuilder {
            pool: Arc::clone(&self.pool),
        }
    }

    /// Tries once to acquire a permit: `Ok(None)` if all slots are taken.
    pub fn try_acquire(&self) -> TryAcquirePermit {
        TryAcquirePermit {
            visit: Visit::new(Door::Pool(Arc::clone(&self.pool)), Limit::Try, false),
        }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

/// Becomes a future once it is given a limit.
#[derive(Debug)]
#[must_use = "nothing is acquired before this is given a limit and awaited"]
pub struct PermitBuilder {
    pool: Arc<Pool>,
}

impl PermitBuilder {
    /// Waits for at most `limit`, all included. Zero makes exactly one attempt.
    pub fn within(self, limit: Duration) -> AcquirePermit {
        AcquirePermit {
            visit: Visit::new(Door::Pool(self.pool), Limit::Within(limit), false),
        }
    }

    /// Waits for as long as it takes.
    pub fn without_limit(self) -> AcquirePermit {
        AcquirePermit {
            visit: Visit::new(Door::Pool(self.pool), Limit::None, false),
        }
    }
}

/// Waits for a free slot and returns its permit.
///
/// # Cancel safety
///
/// The future may be dropped at any time. A slot that was on its way is given back as soon as it comes, within two
/// round trips, or goes to the next who waits.
///
/// # Errors
///
/// See [`AcquireError`]; [`AcquireError::TimedOut`] when the limit has run out while all slots were taken.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct AcquirePermit {
    visit: Visit,
}

impl Future for AcquirePermit {
    type Output = Result<Permit, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let claim = ready!(self.visit.poll(context))?.expect("only a try is answered with nothing");
        Poll::Ready(Ok(Permit::new(claim)))
    }
}

/// Tries once to acquire a permit.
///
/// # Cancel safety
///
/// As for [`AcquirePermit`].
///
/// # Errors
///
/// See [`AcquireError`]. That all slots are taken is not an error but `Ok(None)`.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct TryAcquirePermit {
    visit: Visit,
}

impl Future for TryAcquirePermit {
    type Output = Result<Option<Permit>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(ready!(self.visit.poll(context))?.map(Permit::new)))
    }
}
