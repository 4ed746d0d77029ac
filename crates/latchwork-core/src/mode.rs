//! How a key is held.

use std::fmt;

/// Whether a key is held alone or together with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "PostgreSQL's advisory locks know two modes, and so do we"
)]
pub enum Mode {
    /// One holder, and nobody beside it.
    #[default]
    Exclusive,
    /// Any number of shared holders, and no exclusive one beside them.
    Shared,
}

impl Mode {
    /// Whether a holder of this mode and one of `other` can hold a key at the same time.
    #[must_use]
    pub const fn is_compatible_with(self, other: Self) -> bool {
        matches!((self, other), (Self::Shared, Self::Shared))
    }

    /// The word for this mode in logs, the inspection and the command.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
