//! How a process shows itself to others: in `application_name`, which every role may read.

use std::fmt;

/// The name of a program and a random number for this start of it.
///
/// A host name alone would be the same for all processes of a host, and a process id is reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    application: String,
    number: u32,
}

/// PostgreSQL cuts `application_name` to 63 bytes; the prefix and the number take the rest.
const MAX_APPLICATION: usize = 40;
const PREFIX: &str = "latchwork:";

impl Identity {
    pub(crate) fn new(application: Option<&str>) -> Self {
        let name = application.map_or_else(executable, str::to_owned);
        Self {
            application: cut(&name).to_owned(),
            number: fastrand::u32(..),
        }
    }

    /// Reads an identity back from `application_name`; `None` if it is not one of ours.
    #[must_use]
    pub fn parse(application_name: &str) -> Option<Self> {
        let (application, number) = application_name.strip_prefix(PREFIX)?.rsplit_once('#')?;
        let number = u32::from_str_radix(number, 16).ok()?;
        Some(Self {
            application: application.to_owned(),
            number,
        })
    }

    /// The name of the program.
    #[must_use]
    pub fn application(&self) -> &str {
        &self.application
    }

    /// The random number of this start of the program.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn application_name(&self) -> String {
        format!("{PREFIX}{self}")
    }
}

/// Shows `name#number`, the number as eight hexadecimal digits.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{:08x}", self.application, self.number)
    }
}

fn executable() -> String {
    let path = std::env::current_exe().ok();
    path.and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "unknown".to_owned())
}

fn cut(name: &str) -> &str {
    let mut end = name.len().min(MAX_APPLICATION);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_application_name() {
        for name in [
            "billing",
            "with # and : inside",
            "größer als vierzig Zeichen, und darum abgeschnitten",
            "",
        ] {
            let identity = Identity::new(Some(name));
            assert!(identity.application_name().len() <= 63);
            assert_eq!(Identity::parse(&identity.application_name()), Some(identity));
        }
        assert_eq!(Identity::parse("psql"), None);
    }

    #[test]
    fn two_starts_of_a_program_differ() {
        assert_ne!(Identity::new(Some("billing")), Identity::new(Some("billing")));
    }
}
