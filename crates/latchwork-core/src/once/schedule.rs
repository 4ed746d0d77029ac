#[cfg(feature = "cron")]
mod cron;

#[cfg(feature = "cron")]
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::micros;

/// When a job is due: a row of moments, the ticks, which is the same on every node.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use latchwork_core::once::Schedule;
///
/// let quarterly = Schedule::every(Duration::from_secs(900))?;
/// let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
/// assert_eq!(quarterly.last_at(at(1_000)), Some(at(900)));
/// assert_eq!(quarterly.next_after(at(1_000)), Some(at(1_800)));
/// # Ok::<(), latchwork_core::once::ScheduleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schedule(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Microseconds.
    Every(i64),
    #[cfg(feature = "cron")]
    Cron(Arc<cron::Cron>),
}

/// Why there is no such schedule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The interval is shorter than a millisecond.
    #[error("a job can't be due every {interval:?}; give it a millisecond at least")]
    TooShort {
        /// The interval.
        interval: Duration,
    },
    /// The cron expression can't be read.
    #[cfg(feature = "cron")]
    #[error("the cron expression {expression:?} can't be read")]
    Expression {
        /// The expression.
        expression: String,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no such time zone.
    #[cfg(feature = "cron")]
    #[error("there is no time zone {zone:?}; name one like Europe/Berlin, or UTC")]
    Zone {
        /// The name that was given.
        zone: String,
        /// What was looked for.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Schedule {
    /// A tick in each interval, from the beginning of 1970 (UTC) on, so that all nodes have the same: every 15 minutes is
    /// at :00, :15, :30 and :45. An interval that does not divide a day moves through the days.
    ///
    /// # Errors
    ///
    /// [`ScheduleError::TooShort`] for less than a millisecond.
    pub fn every(interval: Duration) -> Result<Self, ScheduleError> {
        if interval < Duration::from_millis(1) {
            return Err(ScheduleError::TooShort { interval });
        }
        Ok(Self(Kind::Every(micros::span(interval))))
    }

    /// The first tick after a moment; `None` if there is none any more.
    #[must_use]
    pub fn next_after(&self, moment: SystemTime) -> Option<SystemTime> {
        match &self.0 {
            Kind::Every(interval) => {
                let last = last_multiple(micros::of(moment), *interval)?;
                last.checked_add(*interval).map(micros::moment)
            }
            #[cfg(feature = "cron")]
            Kind::Cron(cron) => cron.next_after(moment),
        }
    }

    /// The tick that is due at a moment: the last one that is not after it; `None` if there is none yet.
    #[must_use]
    pub fn last_at(&self, moment: SystemTime) -> Option<SystemTime> {
        match &self.0 {
            Kind::Every(interval) => last_multiple(micros::of(moment), *interval).map(micros::moment),
            #[cfg(feature = "cron")]
            Kind::Cron(cron) => cron.last_at(moment),
        }
    }

    /// How long it is from a tick to the next one; `None` if it is the last.
    #[must_use]
    pub fn interval_after(&self, tick: SystemTime) -> Option<Duration> {
        self.next_after(tick)?.duration_since(tick).ok()
    }
}

fn last_multiple(moment: i64, interval: i64) -> Option<i64> {
    moment.checked_sub(moment.rem_euclid(interval))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn ticks_are_the_same_whenever_one_looks() {
        let schedule = Schedule::every(Duration::from_millis(1_500)).unwrap();
        let at = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        for (moment, last, next) in [
            (0, 0, 1_500),
            (1_499, 0, 1_500),
            (1_500, 1_500, 3_000),
            (4_000, 3_000, 4_500),
        ] {
            assert_eq!(schedule.last_at(at(moment)), Some(at(last)));
            assert_eq!(schedule.next_after(at(moment)), Some(at(next)));
        }
        let before = UNIX_EPOCH - Duration::from_millis(1);
        assert_eq!(
            schedule.last_at(before),
            Some(UNIX_EPOCH - Duration::from_millis(1_500))
        );
        assert_eq!(schedule.next_after(before), Some(UNIX_EPOCH));
        assert_eq!(schedule.interval_after(at(0)), Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn an_interval_of_nothing_is_refused() {
        let error = Schedule::every(Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("millisecond"), "{error}");
    }
}
