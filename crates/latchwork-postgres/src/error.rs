//! How the engine words what the server says.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use latchwork_core::engine::{EngineError, EngineErrorKind};
use tokio_postgres::Error as DriverError;

use crate::{
    connect::ConnectError,
    sqlstate::{Condition, condition},
};

/// Why the server did not do what the engine asked it for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatementError {
    /// The server's lock table is full, for everybody.
    #[error(
        "the server's lock table is full; hold fewer locks, or raise max_locks_per_transaction and restart the server"
    )]
    LockTableFull {
        /// What the server says.
        source: DriverError,
    },
    /// This process holds as many locks as it may.
    #[error(
        "this process holds {held} locks, as many as it may; hold fewer, raise max_locks_per_transaction on the \
         server, or set max_locks"
    )]
    TooManyHeld {
        /// The number of locks held.
        held: usize,
    },
    /// This process holds and waits for as many fenced locks as it may.
    #[error(
        "this process holds and waits for {sessions} fenced locks, each on a session of its own, as many as it may; use \
         fewer, or set fenced_sessions"
    )]
    TooManyFenced {
        /// The number of sessions.
        sessions: usize,
    },
    /// Somebody cancelled our statement.
    #[error("somebody has cancelled the statement on the server")]
    Cancelled {
        /// What the server says.
        source: DriverError,
    },
    /// The server has ended the session: it was told to, or it shuts down.
    #[error("the server has ended the session")]
    SessionEnded {
        /// What the server says.
        source: DriverError,
    },
    /// The server does not answer.
    #[error("the server has not answered for {limit:?}")]
    Silent {
        /// The limit that ran out.
        limit: Duration,
    },
    /// The tables of latchwork are missing, or are not those of this version.
    #[error(
        "the tables of latchwork are missing, or older than this program: install them once, with \
         `latchwork schema install`, Postgres::install_schema, or the SQL that schema::sql() gives"
    )]
    TablesMissing {
        /// What the server says.
        source: DriverError,
    },
    /// The role of this process may not use the tables of latchwork.
    #[error(
        "this role may not use the tables of latchwork: grant it USAGE on schema latchwork, and SELECT, INSERT, UPDATE \
         and DELETE on the tables in it"
    )]
    TablesForbidden {
        /// What the server says.
        source: DriverError,
    },
    /// The server has answered something that is not an answer of ours.
    #[error("the server's answer can't be read; is this PostgreSQL?")]
    Unreadable,
    /// Anything else.
    #[error("the server reports an error")]
    Server {
        /// What the server says.
        source: DriverError,
    },
}

impl StatementError {
    pub(crate) fn from_driver(source: DriverError) -> Self {
        match condition(&source) {
            Some(Condition::LockTableFull) => Self::LockTableFull { source },
            Some(Condition::Cancelled) => Self::Cancelled { source },
            Some(Condition::SessionEnded) => Self::SessionEnded { source },
            _ => Self::Server { source },
        }
    }

    /// As [`StatementError::from_driver`], for a statement that uses our tables.
    pub(crate) fn from_driver_of_tables(source: DriverError) -> Self {
        match condition(&source) {
            Some(Condition::TableMissing) => Self::TablesMissing { source },
            Some(Condition::Forbidden) => Self::TablesForbidden { source },
            _ => Self::from_driver(source),
        }
    }

    const fn kind(&self) -> EngineErrorKind {
        match self {
            Self::LockTableFull { .. } | Self::TooManyHeld { .. } | Self::TooManyFenced { .. } => {
                EngineErrorKind::CapacityExceeded
            }
            Self::TablesMissing { .. } | Self::TablesForbidden { .. } => EngineErrorKind::Setup,
            Self::Silent { .. } => EngineErrorKind::Unavailable,
            Self::SessionEnded { .. } => EngineErrorKind::ConnectionLost,
            Self::Cancelled { .. } | Self::Unreadable | Self::Server { .. } => EngineErrorKind::Failed,
        }
    }

    pub(crate) fn into_engine(self) -> EngineError {
        let kind = self.kind();
        EngineError::with_source(kind, Arc::new(self) as Arc<dyn Error + Send + Sync>)
    }
}

/// Words a failed connection attempt for those who wait for it.
pub(crate) fn unreachable(error: ConnectError) -> EngineError {
    let kind = match error {
        ConnectError::Refused { .. } => EngineErrorKind::Refused,
        _ => EngineErrorKind::Unavailable,
    };
    EngineError::with_source(kind, Arc::new(error) as Arc<dyn Error + Send + Sync>)
}

/// Words the want of an answer for those who wait for it.
pub(crate) fn silent(limit: Duration) -> EngineError {
    StatementError::Silent { limit }.into_engine()
}

/// Words the end of a connection for those whose request was on it.
pub(crate) fn connection_lost(cause: &str) -> EngineError {
    EngineError::with_source(
        EngineErrorKind::ConnectionLost,
        Arc::new(Ended(cause.to_owned())) as Arc<dyn Error + Send + Sync>,
    )
}

/// How a connection ended, in words.
#[derive(Debug)]
struct Ended(String);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Ended {}
