use std::fmt;

/// What came of work that is done once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is nothing between the two")]
pub enum Outcome<T> {
    /// It ran here, and this is its value.
    Ran(T),
    /// It did not run here.
    Skipped(Skipped),
}

impl<T> Outcome<T> {
    /// The value, if it ran here.
    #[must_use]
    pub fn ran(self) -> Option<T> {
        match self {
            Self::Ran(value) => Some(value),
            Self::Skipped(_) => None,
        }
    }

    /// Whether it did not run here.
    #[must_use]
    pub const fn is_skipped(&self) -> bool {
        matches!(self, Self::Skipped(_))
    }
}

/// Why work did not run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Skipped {
    /// Others are at it, or have been a moment ago.
    Held,
    /// The tick, or a later one, was claimed before.
    Claimed,
    /// The schedule has no tick that is due.
    NotDue,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "others are at it",
            Self::Claimed => "the tick was claimed before",
            Self::NotDue => "no tick is due",
        })
    }
}
