//! A transaction on a connection of the caller's.

use futures_util::FutureExt;
use sqlx::{Connection, Error, PgConnection, Postgres, Transaction};

use crate::{
    end::{self, Cause, CommitError, Ends},
    sql,
};

/// A connection of the caller's while there is a transaction of ours on it. Whenever it is dropped, nothing of ours
/// stays open in the server for longer than the statement that it is busy with.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    connection: &'a mut PgConnection,
    /// BEGIN was sent, and sqlx does not take the transaction for open.
    is_beginning: bool,
}

impl<'a> Lent<'a> {
    pub(crate) const fn new(connection: &'a mut PgConnection) -> Self {
        Self {
            connection,
            is_beginning: false,
        }
    }

    pub(crate) async fn begin(&mut self) -> Result<Transaction<'_, Postgres>, Error> {
        self.is_beginning = true;
        let begun = self.connection.begin_with(sql::BEGIN).await?;
        self.is_beginning = false;
        Ok(begun)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // What is polled once is written, and whatever uses the connection next waits for the answer.
        if self.is_beginning {
            // sqlx drops a transaction that it has not seen begin without rolling it back. It sends what it is told to
            // begin with at once, whatever that is.
            drop(self.connection.begin_with("ROLLBACK").now_or_never());
        } else {
            // sqlx keeps the ROLLBACK of a dropped transaction until the connection is used.
            drop(self.connection.ping().now_or_never());
        }
    }
}

impl Ends for Transaction<'_, Postgres> {
    type Transaction = Self;

    fn transaction(&mut self) -> &mut Self {
        self
    }

    async fn commit(mut self) -> Result<(), CommitError> {
        let ended = end::commit(&mut self).await;
        if let Err(CommitError::Aborted(_)) = ended {
            // If this fails, the connection is broken.
            drop(Self::rollback(self).await);
        }
        ended
    }

    async fn roll_back(self) -> Result<(), Cause> {
        Ok(self.rollback().await?)
    }
}
