use std::time::Duration;

use latchwork_core::rate::RateLimitsOptions;

/// The longest time that an answer may take, and the longest interval.
const LONGEST: Duration = Duration::from_secs(3600);

/// Plain values that the rate limits of a [`Postgres`](crate::Postgres) are made with.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork_core::rate::{OnOutage, RateLimitsOptions};
/// use latchwork_postgres::RateOptions;
///
/// let options = RateOptions::default()
///     .with_answer_within(Duration::from_millis(200))
///     .with_limits(RateLimitsOptions::default().with_on_outage(OnOutage::Closed));
/// assert_eq!(options.sweep_interval, Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RateOptions {
    /// What the front is made with: the namespace, what becomes of checks in an outage, how much is remembered.
    pub limits: RateLimitsOptions,
    /// How long the database may take to answer before that counts as an outage. Default 1 s.
    pub answer_within: Duration,
    /// How often one of all the processes deletes the rows that no longer matter. All should give the same. Default 60 s.
    pub sweep_interval: Duration,
}

impl Default for RateOptions {
    fn default() -> Self {
        Self {
            limits: RateLimitsOptions::default(),
            answer_within: Duration::from_secs(1),
            sweep_interval: Duration::from_secs(60),
        }
    }
}

impl RateOptions {
    /// Sets what the front is made with.
    #[must_use]
    pub fn with_limits(mut self, limits: RateLimitsOptions) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long the database may take to answer. At least 10 ms, at most an hour.
    #[must_use]
    pub fn with_answer_within(mut self, limit: Duration) -> Self {
        self.answer_within = limit.clamp(Duration::from_millis(10), LONGEST);
        self
    }

    /// Sets how often rows that no longer matter are deleted. At least 10 ms, at most an hour.
    #[must_use]
    pub fn with_sweep_interval(mut self, interval: Duration) -> Self {
        self.sweep_interval = interval.clamp(Duration::from_millis(10), LONGEST);
        self
    }
}
