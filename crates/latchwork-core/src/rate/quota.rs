//! One quota, and the arithmetic of one theoretical arrival time.

use std::{fmt, time::Duration};

use super::QuotaError;

/// The shortest interval between two units, in nanoseconds: databases keep time in microseconds.
const SHORTEST_INTERVAL: u64 = 1_000;
/// The longest period.
const LONGEST_PERIOD: Duration = Duration::from_secs(366 * 86_400);
/// The longest time in which a burst may come back, in nanoseconds (ten years): sums with the present moment must fit
/// into 64 bits.
const LONGEST_REFILL: u64 = 10 * 366 * 86_400 * 1_000_000_000;

/// How much may be charged: `units` a `period` in the long run, and up to `burst` at once.
///
/// The interval between two units is the period divided by the units, rounded up to a nanosecond, so that never more than
/// the quota is allowed. A quota is a plain value; it is checked when it is made, and then never fails.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork_core::rate::Quota;
///
/// let quota = Quota::new(100, Duration::from_secs(60))?.with_burst(10)?;
/// assert_eq!(quota.interval(), Duration::from_millis(600));
/// assert_eq!(quota.refill(), Duration::from_secs(6));
/// # Ok::<(), latchwork_core::rate::QuotaError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Quota {
    units: u32,
    burst: u32,
    period: Duration,
    /// Nanoseconds from one unit to the next.
    interval: u64,
}

impl Quota {
    /// `units` a `period`, and as many at once.
    ///
    /// # Errors
    ///
    /// [`QuotaError`] if nothing would ever be allowed, for more than 1,000,000 units a second, and for a period above 366
    /// days.
    pub const fn new(units: u32, period: Duration) -> Result<Self, QuotaError> {
        if units == 0 || period.is_zero() {
            return Err(QuotaError::Nothing);
        }
        if period.as_nanos() > LONGEST_PERIOD.as_nanos() {
            return Err(QuotaError::PeriodTooLong { period });
        }
        // Within a year's nanoseconds, as was just checked.
        let interval = (period.as_nanos() as u64).div_ceil(units as u64);
        if (period.as_nanos() as u64) / (units as u64) < SHORTEST_INTERVAL {
            return Err(QuotaError::TooFast { units, period });
        }
        Self {
            units,
            burst: units,
            period,
            interval,
        }
        .checked()
    }

    /// `units` a second, and as many at once.
    ///
    /// # Errors
    ///
    /// As for [`Quota::new`].
    pub const fn per_second(units: u32) -> Result<Self, QuotaError> {
        Self::new(units, Duration::from_secs(1))
    }

    /// `units` a minute, and as many at once.
    ///
    /// # Errors
    ///
    /// As for [`Quota::new`].
    pub const fn per_minute(units: u32) -> Result<Self, QuotaError> {
        Self::new(units, Duration::from_secs(60))
    }

    /// `units` an hour, and as many at once.
    ///
    /// # Errors
    ///
    /// As for [`Quota::new`].
    pub const fn per_hour(units: u32) -> Result<Self, QuotaError> {
        Self::new(units, Duration::from_secs(3_600))
    }

    /// `units` a day of 24 hours, and as many at once.
    ///
    /// # Errors
    ///
    /// As for [`Quota::new`].
    pub const fn per_day(units: u32) -> Result<Self, QuotaError> {
        Self::new(units, Duration::from_secs(86_400))
    }

    /// Sets how many units may be charged at once after a quiet time. At least 1; default: the units of the quota.
    ///
    /// # Errors
    ///
    /// [`QuotaError::Nothing`] for 0, [`QuotaError::BurstTooLarge`] if the burst would take more than ten years to come
    /// back.
    pub const fn with_burst(self, burst: u32) -> Result<Self, QuotaError> {
        Self { burst, ..self }.checked()
    }

    const fn checked(self) -> Result<Self, QuotaError> {
        if self.burst == 0 {
            return Err(QuotaError::Nothing);
        }
        match self.interval.checked_mul(self.burst as u64) {
            Some(refill) if refill <= LONGEST_REFILL => Ok(self),
            _ => Err(QuotaError::BurstTooLarge { burst: self.burst }),
        }
    }

    /// How many units a period are allowed in the long run.
    #[must_use]
    pub const fn units(&self) -> u32 {
        self.units
    }

    /// The period.
    #[must_use]
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// How many units may be charged at once.
    #[must_use]
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// How long one unit takes to come back.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval)
    }

    /// How long a whole burst takes to come back.
    #[must_use]
    pub const fn refill(&self) -> Duration {
        Duration::from_nanos(self.tolerance())
    }

    /// What a charge of `cost` units moves the theoretical arrival time on by, in nanoseconds. The cost is at most the
    /// burst.
    pub(super) const fn step(&self, cost: u32) -> u64 {
        self.interval * cost as u64
    }

    /// How far the theoretical arrival time may lie ahead of the present, in nanoseconds.
    pub(super) const fn tolerance(&self) -> u64 {
        self.interval * self.burst as u64
    }

    /// Whether a charge is allowed when the theoretical arrival time lies so far ahead of the present. A charge of 0
    /// always is.
    pub(super) const fn allows(&self, ahead: u64, cost: u32) -> bool {
        cost == 0 || ahead.saturating_add(self.step(cost)) <= self.tolerance()
    }

    /// After how many nanoseconds a charge will be allowed, if nobody charges anything meanwhile.
    pub(super) const fn allowed_in(&self, ahead: u64, cost: u32) -> u64 {
        if cost == 0 {
            return 0;
        }
        ahead.saturating_add(self.step(cost)).saturating_sub(self.tolerance())
    }

    /// How many units are left.
    pub(super) const fn left(&self, ahead: u64) -> u32 {
        // At most the burst.
        (self.tolerance().saturating_sub(ahead) / self.interval) as u32
    }
}

impl fmt::Debug for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quota({self})")
    }
}

/// Shows `100 per 60s, 10 at once`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {:?}, {} at once", self.units, self.period, self.burst)
    }
}
