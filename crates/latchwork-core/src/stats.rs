//! What the gate has counted.

use crate::gate::Counters;

/// A snapshot of the gate's counters. Counts are since the start of the process, and grow only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that are held or wanted in this process right now.
    pub keys: usize,
    /// Guards and permits that are held in this process right now.
    pub holders: usize,
    /// Grants by the engine.
    pub granted: u64,
    /// Grants without a word to the engine: hand-overs between local holders, and shared holders that joined.
    pub handed_over: u64,
    /// Tries that found the key held by others.
    pub denied: u64,
    /// Waits and tries that were answered with an error.
    pub failed: u64,
    /// Waits and tries that were dropped, or ran out of time, before they were answered.
    pub abandoned: u64,
    /// Holders that gave their hold up.
    pub released: u64,
    /// Keys that were lost because their session ended.
    pub lost: u64,
}

impl Stats {
    pub(crate) const fn new(keys: usize, holders: usize, counters: &Counters) -> Self {
        Self {
            keys,
            holders,
            granted: counters.granted,
            handed_over: counters.handed_over,
            denied: counters.denied,
            failed: counters.failed,
            abandoned: counters.abandoned,
            released: counters.released,
            lost: counters.lost,
        }
    }
}
