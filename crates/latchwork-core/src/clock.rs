//! The clock that trust in a lock is measured on.
//!
//! [`std::time::Instant`] stands still while a Linux machine is suspended; a holder that slept through its lease would
//! still believe in it. So trust runs on `CLOCK_BOOTTIME` there. Elsewhere the monotonic clock of the standard library
//! is the best that is portable.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A point in time on a [`Clock`]: nanoseconds since some start that is the same for the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// A moment that never comes (584 years after the start).
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the clock's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `duration` later, or [`Moment::NEVER`] where that is out of range.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// How long after `earlier` this moment is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A clock that goes on while the machine is suspended; or one that a test moves by hand.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork_core::Clock;
///
/// let (clock, hand) = Clock::manual();
/// let start = clock.now();
/// hand.advance(Duration::from_secs(5));
/// assert_eq!(clock.now().since(start), Duration::from_secs(5));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Clock(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    System,
    Manual(Arc<AtomicU64>),
    #[cfg(test)]
    Tokio(tokio::time::Instant),
}

impl Clock {
    /// The machine's clock.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands at zero until the returned [`ClockHand`] moves it.
    #[must_use]
    pub fn manual() -> (Self, ClockHand) {
        let nanos = Arc::new(AtomicU64::new(0));
        (Self(Source::Manual(Arc::clone(&nanos))), ClockHand(nanos))
    }

    /// The present moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::System => system_now(),
            Source::Manual(nanos) => Moment(nanos.load(Ordering::Acquire)),
            #[cfg(test)]
            Source::Tokio(start) => Moment::default().after(start.elapsed()),
        }
    }

    /// The clock of a paused runtime, whose timers move it.
    #[cfg(test)]
    pub(crate) fn of_tokio() -> Self {
        Self(Source::Tokio(tokio::time::Instant::now()))
    }
}

/// Moves a manual [`Clock`].
#[derive(Debug)]
pub struct ClockHand(Arc<AtomicU64>);

impl ClockHand {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0
            .fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }
}

#[cfg(target_os = "linux")]
fn system_now() -> Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Both are non-negative on this clock; a wrong value would only be distrusted sooner.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Moment(
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0)),
    )
}

#[cfg(not(target_os = "linux"))]
fn system_now() -> Moment {
    use std::{sync::OnceLock, time::Instant};

    static START: OnceLock<Instant> = OnceLock::new();
    Moment(u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_saturate_instead_of_wrapping() {
        assert_eq!(Moment::NEVER.after(Duration::from_secs(1)), Moment::NEVER);
        assert_eq!(Moment::from_nanos(1).since(Moment::from_nanos(2)), Duration::ZERO);
        assert_eq!(Moment::default().after(Duration::MAX), Moment::NEVER);
    }

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = Clock::system();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
