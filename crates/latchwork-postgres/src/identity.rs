//! How a process shows itself to others: in `application_name`, which every role may read.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use latchwork_core::fence::Term;

/// The name of a program and a random number for this start of it.
///
/// A host name alone would be the same for all processes of a host, and a process id is reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    application: String,
    number: u32,
}

/// PostgreSQL cuts `application_name` to so many bytes.
const MAX_APPLICATION_NAME: usize = 63;
/// The prefix and the number take the rest.
const MAX_APPLICATION: usize = 40;
const PREFIX: &str = "latchwork:";

impl Identity {
    pub(crate) fn new(application: Option<&str>) -> Self {
        let name = application.map_or_else(executable, str::to_owned);
        let mut application = printable(&name);
        application.truncate(MAX_APPLICATION);
        Self {
            application,
            number: fastrand::u32(..),
        }
    }

    /// Reads an identity back from `application_name`; `None` if it is not one of ours.
    #[must_use]
    pub fn parse(application_name: &str) -> Option<Self> {
        let (application, number) = application_name.strip_prefix(PREFIX)?.rsplit_once('#')?;
        let number = number.split_once('@').map_or(number, |(number, _)| number);
        let number = u32::from_str_radix(number, 16).ok()?;
        Some(Self {
            application: application.to_owned(),
            number,
        })
    }

    /// The name of the program, with a `?` for each character that is not printable ASCII.
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

    /// As [`application_name`](Self::application_name), of a session that holds a fenced lock. The name of the program
    /// is cut where there is no room for all.
    pub(crate) fn application_name_with(&self, grant: &Granted) -> String {
        let rest = format!("#{:08x}@{grant}", self.number);
        let room = MAX_APPLICATION_NAME.saturating_sub(PREFIX.len() + rest.len());
        format!("{PREFIX}{}{rest}", cut(&self.application, room))
    }
}

/// Which fenced grant a session has: since when, by the clock of its process, to the second, and under which term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// Since when.
    pub since: SystemTime,
    /// The fencing token.
    pub term: Term,
}

impl Granted {
    pub(crate) const fn new(since: SystemTime, term: Term) -> Self {
        Self { since, term }
    }

    /// Reads a grant back from `application_name`; `None` if there is none in it.
    #[must_use]
    pub fn parse(application_name: &str) -> Option<Self> {
        let (_, rest) = application_name.strip_prefix(PREFIX)?.rsplit_once('#')?;
        let mut numbers = rest.split_once('@')?.1.split('.');
        let mut number = || u64::from_str_radix(numbers.next()?, 36).ok();
        let since = UNIX_EPOCH.checked_add(Duration::from_secs(number()?))?;
        let timeline = u32::try_from(number()?).ok()?;
        let term = Term::new(timeline, number()?);
        numbers.next().is_none().then_some(Self { since, term })
    }
}

/// Shows the seconds since 1970, the timeline and the transaction number, each to the base 36.
impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = self.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (timeline, transaction) = (u64::from(self.term.timeline()), self.term.transaction());
        write!(f, "{}.{}.{}", Base36(since), Base36(timeline), Base36(transaction))
    }
}

struct Base36(u64);

impl fmt::Display for Base36 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = Vec::new();
        let mut rest = self.0;
        while rest > 0 || digits.is_empty() {
            digits.push(char::from(
                b"0123456789abcdefghijklmnopqrstuvwxyz"[(rest % 36) as usize],
            ));
            rest /= 36;
        }
        digits.iter().rev().try_for_each(|digit| write!(f, "{digit}"))
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

/// Replaces what a server would show as something else, by a `?` for each byte or, since 16, by four characters, which would
/// push the number and the term out of the name's end.
fn printable(name: &str) -> String {
    let shown = |letter| if matches!(letter, ' '..='~') { letter } else { '?' };
    name.chars().map(shown).collect()
}

fn cut(name: &str, room: usize) -> &str {
    let mut end = name.len().min(room);
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
            "夜間バッチ処理、とても長い名前のプログラム、夜間バッチ処理",
            "\u{1}\n\t",
            "",
        ] {
            let identity = Identity::new(Some(name));
            let shown = identity.application_name();
            assert!(
                shown.len() <= 63 && shown.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                "{shown}"
            );
            assert_eq!(Identity::parse(&identity.application_name()), Some(identity));
        }
        assert_eq!(Identity::new(Some("größer")).application(), "gr??er");
        assert_eq!(Identity::parse("psql"), None);
    }

    #[test]
    fn a_grant_and_an_identity_survive_application_name_together() {
        let since = UNIX_EPOCH + Duration::from_secs(1_796_000_000);
        for term in [Term::new(1, 0), Term::new(7, 731), Term::new(u32::MAX, u64::MAX)] {
            for name in [
                "billing",
                "with # and @ inside",
                "a name that is cut when there is much",
                "größtenteils-nächtliche-abrechnungsläufe",
            ] {
                let (identity, granted) = (Identity::new(Some(name)), Granted::new(since, term));
                let shown = identity.application_name_with(&granted);
                assert!(shown.len() <= MAX_APPLICATION_NAME, "{shown}");
                assert_eq!(Granted::parse(&shown), Some(granted));
                let read = Identity::parse(&shown).unwrap();
                assert_eq!(read.number, identity.number);
                assert!(identity.application.starts_with(&read.application));
                assert!(read.application.len() >= name.len().min(8), "{shown}");
            }
        }
        let identity = Identity::new(Some("billing"));
        assert_eq!(Granted::parse(&identity.application_name()), None);
    }

    #[test]
    fn two_starts_of_a_program_differ() {
        assert_ne!(Identity::new(Some("billing")), Identity::new(Some("billing")));
    }
}
