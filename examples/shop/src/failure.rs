//! What stops the program.

use std::error::Error;
use std::fmt;

/// Why the program cannot go on, with all causes in its text.
#[derive(Debug)]
pub struct Failure {
    text: String,
    exit_status: u8,
}

impl Failure {
    /// Something that does not work.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            exit_status: 1,
        }
    }

    /// Something that does not work, and why.
    pub(crate) fn because(what: &str, cause: &dyn Error) -> Self {
        Self::new(format!("{what}: {}", chain(cause)))
    }

    /// Something that the user has to put differently.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            exit_status: 2,
        }
    }

    pub(crate) const fn exit_status(&self) -> u8 {
        self.exit_status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(chain(&error))
    }
}

/// The texts of an error and of its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}
