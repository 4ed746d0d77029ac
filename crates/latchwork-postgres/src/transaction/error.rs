use std::time::Duration;

use latchwork_core::Key;
use thiserror::Error;

use crate::sqlstate::Condition;

/// Why a transaction did not get a lock.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XactLockError {
    /// Somebody else had the lock all the time. The transaction is usable.
    #[error("key {key} was not free within {limit:?}; try again later, or allow more time")]
    TimedOut {
        /// The key.
        key: Key,
        /// The limit that ran out.
        limit: Duration,
    },
    /// The transaction reads from a snapshot that is older than any grant can be. Nothing was locked, and the
    /// transaction is usable.
    #[error(
        "key {key} was not locked, since this transaction is {isolation} and reads from a snapshot older than the \
         lock; use READ COMMITTED, or allow_stale_snapshot() if the work does not depend on what it reads"
    )]
    StaleSnapshot {
        /// The key.
        key: Key,
        /// The isolation level.
        isolation: String,
    },
    /// The server is a hot standby, whose locks exclude nobody elsewhere. Nothing was locked.
    #[error(
        "key {key} was not locked, since this is a hot standby whose locks exclude nobody elsewhere; connect to the primary"
    )]
    Standby {
        /// The key.
        key: Key,
    },
    /// The wait was cancelled: by `statement_timeout`, `pg_cancel_backend`, or a cancel request. The transaction is
    /// usable.
    #[error(
        "the wait for key {key} was cancelled; raise statement_timeout above the limit if that was it, or try again"
    )]
    Cancelled {
        /// The key.
        key: Key,
    },
    /// This transaction and others wait for each other. The transaction is aborted.
    #[error(
        "the wait for key {key} was a deadlock, and the transaction is aborted; roll back and run it again, and take keys in one order everywhere"
    )]
    Deadlock {
        /// The key.
        key: Key,
        /// What the server says.
        source: tokio_postgres::Error,
    },
    /// The server's lock table is full. The transaction is aborted.
    #[error(
        "there is no room for key {key} in the server's lock table, and the transaction is aborted; hold fewer locks at once, or raise max_locks_per_transaction"
    )]
    LockTableFull {
        /// The key.
        key: Key,
        /// What the server says.
        source: tokio_postgres::Error,
    },
    /// An earlier statement had failed, so that the transaction can only be rolled back.
    #[error("key {key} was not locked, since an earlier statement of the transaction has failed; roll back")]
    Aborted {
        /// The key.
        key: Key,
        /// What the server says.
        source: tokio_postgres::Error,
    },
    /// The server did not answer in time. It is not known whether it granted the lock; drop the transaction and close
    /// the connection.
    #[error(
        "the server did not answer the request for key {key} in time; drop the transaction and close the connection"
    )]
    NoAnswer {
        /// The key.
        key: Key,
    },
    /// The connection ended, and with it the transaction and its locks.
    #[error(
        "the connection ended during the request for key {key}, and with it the transaction; connect and run it again"
    )]
    ConnectionLost {
        /// The key.
        key: Key,
        /// What the driver says.
        source: tokio_postgres::Error,
    },
    /// Any other error of the server or the driver. The transaction is aborted.
    #[error("the request for key {key} failed, and the transaction is aborted; roll back and see the cause")]
    Backend {
        /// The key.
        key: Key,
        /// What the server or the driver says.
        source: tokio_postgres::Error,
    },
}

impl XactLockError {
    /// Says whether the limit ran out, which is contention and no failure.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Says whether running the whole transaction again may work, with nothing changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::Cancelled { .. }
                | Self::Deadlock { .. }
                | Self::NoAnswer { .. }
                | Self::ConnectionLost { .. }
        )
    }

    /// Says whether the transaction can go on.
    #[must_use]
    pub fn leaves_transaction_usable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. } | Self::StaleSnapshot { .. } | Self::Standby { .. } | Self::Cancelled { .. }
        )
    }

    /// Sorts an error of the driver.
    pub(super) fn from_driver(key: Key, source: tokio_postgres::Error) -> Self {
        match Condition::of(&source) {
            Some(Condition::Deadlock) => Self::Deadlock { key, source },
            Some(Condition::LockTableFull) => Self::LockTableFull { key, source },
            Some(Condition::TransactionAborted) => Self::Aborted { key, source },
            Some(Condition::SessionEnded) => Self::ConnectionLost { key, source },
            Some(
                Condition::Cancelled
                | Condition::InTransaction
                | Condition::TableMissing
                | Condition::Forbidden
                | Condition::ReadOnly
                | Condition::Other,
            ) => Self::Backend { key, source },
            None if is_broken(&source) => Self::ConnectionLost { key, source },
            None => Self::Backend { key, source },
        }
    }
}

fn is_broken(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    error.is_closed() || error.source().is_some_and(|source| source.is::<std::io::Error>())
}
