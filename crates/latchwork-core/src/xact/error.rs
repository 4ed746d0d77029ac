use std::time::Duration;

use thiserror::Error;

use super::{Cause, KeySet};
use crate::Key;

/// Why a transaction did not get its locks. It has all that it asked for, or none.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum XactLockError {
    /// Others had the lock all the time. The transaction is usable.
    #[error("{keys} not free within {limit:?}; try again later, or allow more time")]
    TimedOut {
        /// The keys.
        keys: KeySet,
        /// The limit that ran out.
        limit: Duration,
    },
    /// The grant that the transaction was to prove is not in force: it was given up, or lost, and another may have begun.
    /// Roll back, and acquire the lock anew.
    #[error("the fenced grant of key {key} is not in force any more; roll back, and acquire the lock anew")]
    Superseded {
        /// The key of the lock.
        key: Key,
    },
    /// The connection has no transaction open, so that the lock would have ended at once. Nothing is locked.
    #[error("{keys} not locked, since no transaction is open on this connection; begin one first")]
    NoTransaction {
        /// The keys.
        keys: KeySet,
    },
    /// The transaction reads from a snapshot that is older than any grant can be. Nothing was locked, and the
    /// transaction is usable.
    #[error(
        "{keys} not locked, since this transaction is {isolation} and reads from a snapshot older than the lock; use \
         READ COMMITTED, or allow_stale_snapshot() if the work does not depend on what it reads"
    )]
    StaleSnapshot {
        /// The keys.
        keys: KeySet,
        /// The isolation level.
        isolation: String,
    },
    /// The server is a hot standby, whose locks exclude nobody elsewhere. Nothing was locked.
    #[error(
        "{keys} not locked, since this is a hot standby whose locks exclude nobody elsewhere; connect to the primary"
    )]
    Standby {
        /// The keys.
        keys: KeySet,
    },
    /// The wait was cancelled: by `statement_timeout`, `pg_cancel_backend`, or a cancel request. The transaction is
    /// usable.
    #[error("the wait for {keys} was cancelled; raise statement_timeout above the limit if that was it, or try again")]
    Cancelled {
        /// The keys.
        keys: KeySet,
    },
    /// This transaction and others wait for each other. It is usable if there is no source, but keeps what others may
    /// wait for.
    #[error(
        "the wait for {keys} was a deadlock; roll back and run the transaction again, and take keys together, or in \
         one order everywhere"
    )]
    Deadlock {
        /// The keys.
        keys: KeySet,
        /// What the server says, if that has aborted the transaction.
        source: Option<Cause>,
    },
    /// The server's lock table is full. The transaction is usable if there is no source.
    #[error(
        "there is no room for {keys} in the server's lock table; hold fewer locks at once, or raise \
         max_locks_per_transaction"
    )]
    LockTableFull {
        /// The keys.
        keys: KeySet,
        /// What the server says, if that has aborted the transaction.
        source: Option<Cause>,
    },
    /// An earlier statement had failed, so that the transaction can only be rolled back.
    #[error("{keys} not locked, since an earlier statement of the transaction has failed; roll back")]
    Aborted {
        /// The keys.
        keys: KeySet,
        /// What the server says.
        source: Cause,
    },
    /// The server did not answer in time, or not as it should. It is not known whether it granted the lock; drop the
    /// transaction and close the connection.
    #[error("the server did not answer the request for {keys} in time; drop the transaction and close the connection")]
    NoAnswer {
        /// The keys.
        keys: KeySet,
    },
    /// The connection ended, and with it the transaction and its locks.
    #[error(
        "the connection ended during the request for {keys}, and with it the transaction; connect and run it again"
    )]
    ConnectionLost {
        /// The keys.
        keys: KeySet,
        /// What the driver says.
        source: Cause,
    },
    /// Any other error of the server or the driver. The transaction is aborted.
    #[error("the request for {keys} failed, and the transaction is aborted; roll back and see the cause")]
    Backend {
        /// The keys.
        keys: KeySet,
        /// What the server or the driver says.
        source: Cause,
    },
}

impl XactLockError {
    /// Says whether the limit ran out, which is contention and no failure.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Says whether running the whole transaction again may work, with nothing changed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
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
    pub const fn leaves_transaction_usable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::StaleSnapshot { .. }
                | Self::Standby { .. }
                | Self::Cancelled { .. }
                | Self::Deadlock { source: None, .. }
                | Self::LockTableFull { source: None, .. }
        )
    }
}
