use std::cmp::Ordering;

use super::{SchemaError, VERSION};

/// Which version of the tables is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaState {
    /// None, or not all of the tables.
    Missing,
    /// An older one than this program needs.
    Older {
        /// The version that is there.
        found: i32,
    },
    /// A newer one than this program knows.
    Newer {
        /// The version that is there.
        found: i32,
    },
    /// The right one.
    Right,
}

impl SchemaState {
    pub(super) fn judge(found: i32, is_whole: bool) -> Self {
        match found.cmp(&VERSION) {
            Ordering::Less => Self::Older { found },
            Ordering::Greater => Self::Newer { found },
            Ordering::Equal if is_whole => Self::Right,
            Ordering::Equal => Self::Missing,
        }
    }

    /// Makes everything but the right version an error, whose text says what to do.
    ///
    /// # Errors
    ///
    /// [`SchemaError::Missing`], [`SchemaError::Older`] and [`SchemaError::Newer`].
    pub const fn require(self) -> Result<(), SchemaError> {
        match self {
            Self::Right => Ok(()),
            Self::Missing => Err(SchemaError::Missing),
            Self::Older { found } => Err(SchemaError::Older { found }),
            Self::Newer { found } => Err(SchemaError::Newer { found }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_but_the_right_one_says_what_to_do() {
        let states = [(VERSION, false), (VERSION - 1, true), (VERSION + 1, true)];
        for (found, is_whole) in states {
            let text = SchemaState::judge(found, is_whole).require().unwrap_err().to_string();
            assert!(
                text.contains("install_schema") || text.contains("update the program"),
                "{text}"
            );
        }
        assert!(SchemaState::judge(VERSION, true).require().is_ok());
    }
}
