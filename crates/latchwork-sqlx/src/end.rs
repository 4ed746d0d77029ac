//! How a transaction of ours ends.

use std::{error::Error as StdError, future::Future, ops::DerefMut};

use latchwork_core::{sqlstate::Condition, xact::LockedError};
use sqlx::{Error, Executor, PgConnection};

use crate::{
    error::{condition, is_broken, is_setting_unknown},
    sql,
    wait::text,
};

pub(crate) type Cause = Box<dyn StdError + Send + Sync>;

/// An open transaction of ours, and how it is ended.
pub(crate) trait Ends: Send + Sized {
    /// sqlx's own.
    type Transaction: DerefMut<Target = PgConnection> + Send;

    fn transaction(&mut self) -> &mut Self::Transaction;

    fn commit(self) -> impl Future<Output = Result<(), CommitError>> + Send;

    /// Nothing is stored, whatever comes of it.
    fn roll_back(self) -> impl Future<Output = Result<(), Cause>> + Send;
}

/// Why a transaction was not committed, or why that is not known.
#[derive(Debug)]
pub(crate) enum CommitError {
    Aborted(Error),
    Unknown(Cause),
}

impl<E> From<CommitError> for LockedError<E> {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Aborted(error) => Self::Aborted(error.into()),
            CommitError::Unknown(cause) => Self::OutcomeUnknown(cause),
        }
    }
}

/// Commits, and leaves sqlx and the server in a transaction with nothing in it.
///
/// Only an error that leaves the connection open is the server's word: one that ends it can come from a pooler, whose
/// server may have committed.
pub(crate) async fn commit(transaction: &mut PgConnection) -> Result<(), CommitError> {
    let error = match transaction.fetch_optional(sql::COMMIT).await {
        Ok(row) if text(row.as_ref(), 0) == Some(sql::OPEN) => return Ok(()),
        Ok(_) => return Err(CommitError::Unknown(ENDED_BY_BODY.into())),
        Err(error) if is_broken(&error) || error.as_database_error().is_none() => {
            return Err(CommitError::Unknown(error.into()));
        }
        Err(error) => error,
    };
    if condition(&error) != Some(Condition::TransactionAborted) {
        // COMMIT itself was refused, so there is none left for sqlx to roll back, and the server would warn of that.
        // Whether this works is seen by the ROLLBACK.
        drop(transaction.execute("BEGIN").await);
    }
    if is_setting_unknown(&error) {
        return Err(CommitError::Unknown(ENDED_BY_BODY.into()));
    }
    Err(CommitError::Aborted(error))
}

const ENDED_BY_BODY: &str = "the body has ended the transaction itself; leave COMMIT and ROLLBACK to latchwork";
