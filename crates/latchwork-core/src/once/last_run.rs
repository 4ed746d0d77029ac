use std::{
    fmt,
    time::{Duration, SystemTime},
};

/// The last run of a job that the ledger knows, on whichever node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRun {
    /// The name of the job, as the node has spelt it.
    pub name: String,
    /// The moment that it was scheduled for.
    pub tick: SystemTime,
    /// Which process has run it.
    pub claimed_by: String,
    /// When it began, by the database's clock.
    pub began_at: SystemTime,
    /// When it ended, by the database's clock; `None` while it runs, and for ever if its process has died.
    pub ended_at: Option<SystemTime>,
    /// How it ended.
    pub end: Option<RunEnd>,
}

impl LastRun {
    /// A run that has begun.
    #[must_use]
    pub const fn new(name: String, tick: SystemTime, claimed_by: String, began_at: SystemTime) -> Self {
        Self {
            name,
            tick,
            claimed_by,
            began_at,
            ended_at: None,
            end: None,
        }
    }

    /// How long it took, if it has ended.
    #[must_use]
    pub fn took(&self) -> Option<Duration> {
        self.ended_at
            .map(|ended| ended.duration_since(self.began_at).unwrap_or_default())
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunEnd {
    /// The work is done.
    Done,
    /// The work reported an error, or panicked.
    Failed,
    /// It was stopped at its limit.
    Overran,
    /// It was stopped when its lock was lost.
    Lost,
    /// Whoever awaited it gave it up.
    Dropped,
    /// It was committed with the work's own transaction.
    Committed,
    /// There was no run: the job has become known, and its missed ticks count from this one on.
    Enrolled,
}

impl RunEnd {
    const ALL: [Self; 7] = [
        Self::Done,
        Self::Failed,
        Self::Overran,
        Self::Lost,
        Self::Dropped,
        Self::Committed,
        Self::Enrolled,
    ];

    /// The word that the ledger has for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Overran => "overran",
            Self::Lost => "lost",
            Self::Dropped => "dropped",
            Self::Committed => "committed",
            Self::Enrolled => "enrolled",
        }
    }

    /// Reads the ledger's word; `None` if it is not one of ours.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.as_str() == word)
    }
}

impl fmt::Display for RunEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for end in RunEnd::ALL {
            assert_eq!(RunEnd::parse(end.as_str()), Some(end));
        }
        assert_eq!(RunEnd::parse("fine"), None);
    }
}
