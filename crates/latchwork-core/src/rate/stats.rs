//! What the front of the rate limits has counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A snapshot of the counters. Counts are since the start of the process, and grow only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateStats {
    /// Charges that were allowed.
    pub allowed: u64,
    /// Charges that were denied.
    pub denied: u64,
    /// Those of the denials that needed no word to the database.
    pub denied_from_memory: u64,
    /// Decisions that this process has made alone in an outage. They are among the allowed and the denied, too.
    pub degraded: u64,
    /// Checks that ended with an error.
    pub failed: u64,
    /// How often an outage has begun.
    pub outages: u64,
    /// Whether there is an outage now, as far as the last answer tells.
    pub is_outage: bool,
    /// Denials that are remembered now.
    pub denials: usize,
    /// Rows that the limiter of this process keeps now.
    pub local_rows: usize,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) allowed: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) denied_from_memory: AtomicU64,
    pub(super) degraded: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) outages: AtomicU64,
    pub(super) is_outage: AtomicBool,
}

impl Counters {
    pub(super) fn snapshot(&self, denials: usize, local_rows: usize) -> RateStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RateStats {
            allowed: read(&self.allowed),
            denied: read(&self.denied),
            denied_from_memory: read(&self.denied_from_memory),
            degraded: read(&self.degraded),
            failed: read(&self.failed),
            outages: read(&self.outages),
            is_outage: self.is_outage.load(Ordering::Relaxed),
            denials,
            local_rows,
        }
    }
}

/// Counts one more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
