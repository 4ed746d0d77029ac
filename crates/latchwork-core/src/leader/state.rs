use std::fmt;

use crate::fence::Term;

/// Where a candidate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaderState {
    /// It does not lead. It campaigns, unless it was told not to.
    Follower,
    /// It leads.
    Leader(Term),
    /// It has led until now, but its server does not answer in time: it may not believe that it leads. Its work should
    /// pause.
    Suspended(Term),
    /// It leads no more, though nobody here wanted that. Its work was cancelled, and may not have returned yet.
    Lost(Term),
    /// It gives its leadership up, and does so when its work has returned.
    Resigned(Term),
    /// It leads no more and has given the lock up or lost it, but its work has not returned within the limit for that.
    Undrained(Term),
    /// It has ended, and does not campaign any more.
    Closed,
}

impl LeaderState {
    /// The term that this is about.
    #[must_use]
    pub const fn term(self) -> Option<Term> {
        match self {
            Self::Leader(term)
            | Self::Suspended(term)
            | Self::Lost(term)
            | Self::Resigned(term)
            | Self::Undrained(term) => Some(term),
            Self::Follower | Self::Closed => None,
        }
    }
}

/// Shows a word, with the term if there is one: `leader 00000001-00000000000002db`.
impl fmt::Display for LeaderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Follower => "follower",
            Self::Leader(_) => "leader",
            Self::Suspended(_) => "suspended",
            Self::Lost(_) => "lost",
            Self::Resigned(_) => "resigned",
            Self::Undrained(_) => "undrained",
            Self::Closed => "closed",
        })?;
        match self.term() {
            Some(term) => write!(f, " {term}"),
            None => Ok(()),
        }
    }
}
