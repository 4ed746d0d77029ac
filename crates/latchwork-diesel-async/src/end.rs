//! How a transaction of ours ends.

use std::{error::Error as StdError, future::Future};

use diesel_async::AsyncPgConnection;
use futures_util::future::join;
use latchwork_core::xact::LockedError;

use crate::{
    error::{is_lost, message},
    sql, state,
    wait::batch,
};

pub(crate) type Cause = Box<dyn StdError + Send + Sync>;

/// An open transaction of ours, and how it is ended.
pub(crate) trait Ends: Send + Sized {
    fn connection(&mut self) -> &mut AsyncPgConnection;

    fn commit(self) -> impl Future<Output = Result<(), CommitError>> + Send;

    /// Nothing is stored, whatever comes of it.
    fn roll_back(self) -> impl Future<Output = Result<(), Cause>> + Send;
}

/// Why a transaction was not committed, or why that is not known.
#[derive(Debug)]
pub(crate) enum CommitError {
    /// Nothing was stored, and the connection is in no transaction.
    Aborted(Cause),
    Unknown(Cause),
}

impl<E> From<CommitError> for LockedError<E> {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Aborted(cause) => Self::Aborted(cause),
            CommitError::Unknown(cause) => Self::OutcomeUnknown(cause),
        }
    }
}

/// Commits, and leaves the server in no transaction.
///
/// Only an error that leaves the connection open is the server's word: one that ends it can come from a pooler, whose
/// server may have committed.
pub(crate) async fn commit(connection: &mut AsyncPgConnection) -> Result<(), CommitError> {
    if matches!(state::depth(connection), Ok(2..)) {
        return match batch(connection, "ROLLBACK").await {
            Ok(()) => Err(CommitError::Aborted(LEFT_NESTED.into())),
            Err(error) => Err(CommitError::Unknown(error.into())),
        };
    }
    let Err(error) = batch(connection, sql::COMMIT).await else {
        return Ok(());
    };
    if is_lost(&error) || clear_away(connection).await.is_err() {
        return Err(CommitError::Unknown(error.into()));
    }
    if message(&error).is_some_and(|message| message.contains(sql::NOT_OURS)) {
        return Err(CommitError::Unknown(ENDED_BY_BODY.into()));
    }
    Err(CommitError::Aborted(error.into()))
}

/// Rolls back where it is not known whether a transaction is open. Outside of one the server warns of a ROLLBACK, and
/// within one that is aborted it takes nothing else.
async fn clear_away(connection: &AsyncPgConnection) -> Result<(), diesel::result::Error> {
    let [begin, roll_back] = CLEAR_AWAY.map(|statement| batch(connection, statement));
    let (_, rolled_back) = join(begin, roll_back).await;
    rolled_back
}

pub(crate) const CLEAR_AWAY: [&str; 2] = ["BEGIN", "ROLLBACK"];
const ENDED_BY_BODY: &str = "the body has ended the transaction itself; leave COMMIT and ROLLBACK to latchwork";
const LEFT_NESTED: &str =
    "the body has left a nested transaction open, which was then neither committed nor rolled back";
