//! Deleting the rows that no longer matter, a few at a time, by one process at a time.

use std::time::Duration;

use latchwork_core::{
    Clock, Key, Moment, Namespace,
    rate::{Quota, Quotas, RateRow},
};

/// How many rows one statement looks at: few, for those who are checked wait behind it.
pub(super) const ROWS: i64 = 250;

/// When to sweep, and how far it has come.
#[derive(Debug)]
pub(super) struct Sweep {
    interval: Duration,
    due: Moment,
    /// Behind which row to go on, while a sweep is under way.
    behind: Option<(i64, i64)>,
}

impl Sweep {
    /// The first sweep is due at some moment of the first interval, so that processes that start together do not all
    /// begin at once.
    pub(super) fn new(interval: Duration, clock: &Clock) -> Self {
        Self {
            interval,
            due: clock.now().after(interval.mul_f64(fastrand::f64())),
            behind: None,
        }
    }

    /// Whether the turn is to be taken.
    pub(super) const fn is_due(&self, now: Moment) -> bool {
        self.behind.is_none() && self.due.as_nanos() <= now.as_nanos()
    }

    /// The row behind which to go on.
    pub(super) const fn behind(&self) -> Option<(i64, i64)> {
        self.behind
    }

    /// The next try is due after an interval; with the turn, a sweep begins.
    pub(super) fn turn(&mut self, mine: bool, clock: &Clock) {
        self.due = clock.now().after(self.interval);
        self.behind = mine.then_some((i64::MIN, i64::MIN));
    }

    /// Goes on behind a row, or has come to the end.
    pub(super) const fn came_to(&mut self, row: Option<(i64, i64)>) {
        self.behind = row;
    }
}

/// The row that is charged for the turn to sweep: a rate limit of one in each interval, over all processes.
pub(super) fn turn(interval: Duration) -> Option<(RateRow, Quotas)> {
    let quotas = Quotas::from(Quota::new(1, interval).ok()?);
    Some((RateRow::new(key(), &quotas), quotas))
}

/// The key of the turn, and of the lock under which rows are deleted.
pub(super) fn key() -> Key {
    Namespace::unnamed()
        .key_of(&["latchwork", "rate_limits", "sweep"])
        .expect("the name is short and not empty")
}
