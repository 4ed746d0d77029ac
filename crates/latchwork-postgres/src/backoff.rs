//! How long to wait between two attempts to connect.

use std::time::Duration;

use crate::shared::Shared;

/// The shortest and the longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A connection that has held for so long was a good one.
pub(crate) const GOOD_AFTER: Duration = Duration::from_secs(1);

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// The pause after one more failure, longer than the last, give or take a fifth.
    pub(crate) fn next(&mut self) -> Duration {
        let (shortest, longest) = PAUSES;
        self.0 = self.0.saturating_add(1);
        Shared::jittered(shortest.saturating_mul(1 << self.0.clamp(1, 10)).min(longest))
    }

    /// A connection was good.
    pub(crate) const fn reset(&mut self) {
        self.0 = 0;
    }
}
