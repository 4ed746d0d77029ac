//! How a command ends: with a status, and with words if it is not a good one.

use std::{error::Error, io, process::ExitCode};

use latchwork_core::{
    AcquireError, ReleaseError,
    key::KeyError,
    once::{OnceError, ScheduleError},
    slots::SlotsError,
};
use latchwork_postgres::{ConnectError, config::ConfigError, inspect::InspectError, schema::SchemaError};

use crate::output::news;

/// The exit status of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(u8);

impl Status {
    pub(crate) const SUCCESS: Self = Self(0);
    /// Doctor: it works, but not as well as it could. Schema: the tables are not those of this version.
    pub(crate) const WARNINGS: Self = Self(1);
    /// Doctor: not to be trusted.
    pub(crate) const UNFIT: Self = Self(2);
    /// The command line, a name or the connection settings can't be used.
    pub(crate) const USAGE: Self = Self(64);
    /// The database can't be reached, or was refused, or refuses.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// Something that is none of the others' fault.
    pub(crate) const INTERNAL: Self = Self(70);
    /// The command was stopped because it ran for too long, as timeout(1) has it.
    pub(crate) const OVERRAN: Self = Self(124);
    /// The lock was lost.
    pub(crate) const LOST: Self = Self(74);
    /// Others have it.
    pub(crate) const BUSY: Self = Self(75);
    /// The command is there, and can't be run.
    pub(crate) const CANNOT_RUN: Self = Self(126);
    /// The command is not there.
    pub(crate) const NOT_FOUND: Self = Self(127);

    pub(crate) const fn of_command(code: u8) -> Self {
        Self(code)
    }

    /// As a shell has it for a command that a signal has ended.
    pub(crate) const fn of_signal(signal: i32) -> Self {
        Self(128_u8.wrapping_add(signal as u8))
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.0)
    }
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    /// The chain of causes, in words.
    text: String,
}

impl Failure {
    pub(crate) fn new(status: Status, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
        }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Status::USAGE, text)
    }

    pub(crate) fn of(status: Status, error: &dyn Error) -> Self {
        Self::new(status, chain(error))
    }

    /// The same in other words.
    pub(crate) fn reworded(self, reword: impl FnOnce(&str) -> String) -> Self {
        Self {
            text: reword(&self.text),
            ..self
        }
    }

    /// Tells it on standard error, and gives the status to end with.
    pub(crate) fn report(self) -> Status {
        if !self.text.is_empty() {
            news(&self.text);
        }
        self.status
    }
}

/// An error and its causes in one line. Texts of ours say nothing of their cause, others' may.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Self {
        let status = match &error {
            AcquireError::Key(_) => Status::USAGE,
            error if error.is_timeout() => Status::BUSY,
            _ => Status::UNAVAILABLE,
        };
        Self::of(status, &error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        // Whoever reads our output has seen enough.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Status::SUCCESS, "");
        }
        Self::of(Status::INTERNAL, &error)
    }
}

impl From<OnceError> for Failure {
    fn from(error: OnceError) -> Self {
        match error {
            OnceError::Acquire(error) => error.into(),
            error => Self::of(Status::UNAVAILABLE, &error),
        }
    }
}

macro_rules! failures {
    ($($error:ty => $status:ident),+ $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::of(Status::$status, &error)
            }
        }
    )+};
}

failures! {
    ConfigError => USAGE,
    ConnectError => UNAVAILABLE,
    InspectError => UNAVAILABLE,
    KeyError => USAGE,
    ReleaseError => LOST,
    ScheduleError => USAGE,
    SchemaError => UNAVAILABLE,
    SlotsError => USAGE,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use latchwork_core::Key;

    use super::*;

    #[test]
    fn an_outage_is_not_contention() {
        let key = Key::bigint(7);
        let limit = Duration::from_secs(1);
        let table = [
            (AcquireError::TimedOut { key, limit }, Status::BUSY),
            (AcquireError::NotReady { key, limit }, Status::UNAVAILABLE),
            (AcquireError::Unavailable { key, source: None }, Status::UNAVAILABLE),
            (AcquireError::ConnectionLost { key, source: None }, Status::UNAVAILABLE),
            (AcquireError::Refused { source: None }, Status::UNAVAILABLE),
            (
                AcquireError::CapacityExceeded { key, source: None },
                Status::UNAVAILABLE,
            ),
            (AcquireError::Key(KeyError::EmptyName), Status::USAGE),
        ];
        for (error, status) in table {
            let text = error.to_string();
            assert_eq!(Failure::from(error).status, status, "{text}");
        }
    }

    #[test]
    fn a_signal_is_told_as_a_shell_does() {
        assert_eq!(Status::of_signal(15), Status(143));
        assert_eq!(Status::of_signal(9), Status(137));
    }
}
