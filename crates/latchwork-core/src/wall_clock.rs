//! The time of day, which ticks are named by.

use std::{fmt, sync::Arc, time::SystemTime};

/// The clock on the wall: the machine's, or one that a test makes.
///
/// Ticks are named by it, and nothing else: how long a lock is believed in runs on a [`Clock`](crate::Clock), which
/// nobody sets.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use latchwork_core::WallClock;
///
/// // A node whose clock is an hour ahead.
/// let ahead = WallClock::from_fn(|| SystemTime::now() + Duration::from_secs(3_600));
/// assert!(ahead.now() > WallClock::system().now());
/// ```
#[derive(Clone, Default)]
pub struct WallClock(Option<Arc<Reads>>);

type Reads = dyn Fn() -> SystemTime + Send + Sync;

impl WallClock {
    /// The machine's clock.
    #[must_use]
    pub const fn system() -> Self {
        Self(None)
    }

    /// A clock that is read by a function.
    #[must_use]
    pub fn from_fn(read: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(read)))
    }

    /// The present time of day.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        match &self.0 {
            Some(read) => read(),
            None => SystemTime::now(),
        }
    }

    /// A clock that begins at `start`, and that the timers of a paused runtime move.
    #[cfg(test)]
    pub(crate) fn of_tokio(start: SystemTime) -> Self {
        let begun = tokio::time::Instant::now();
        Self::from_fn(move || start + begun.elapsed())
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WallClock")
            .field("is_system", &self.0.is_none())
            .finish_non_exhaustive()
    }
}
