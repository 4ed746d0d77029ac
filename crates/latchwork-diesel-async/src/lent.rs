//! A transaction on a connection of the caller's.

use diesel_async::{AsyncPgConnection, SimpleAsyncConnection as _};
use futures_util::FutureExt as _;

use crate::{
    end::{self, CLEAR_AWAY, Cause, CommitError, Ends},
    state,
    wait::batch,
};

/// A connection of the caller's while there is a transaction of ours on it. Whenever it is dropped, nothing of ours stays
/// open in the server for longer than the statement that it is busy with.
pub(crate) struct Lent<'a> {
    connection: &'a mut AsyncPgConnection,
    at: At,
}

#[derive(Clone, Copy, Debug)]
enum At {
    /// BEGIN is sent, or about to be in this very poll.
    Open,
    /// COMMIT is sent, and the transaction may have ended with it or not.
    Committing,
    /// Nothing is left to send.
    Ended,
}

impl<'a> Lent<'a> {
    /// BEGIN is to be sent before anything else is waited for.
    pub(crate) fn new(connection: &'a mut AsyncPgConnection) -> Self {
        state::begin(connection);
        Self {
            connection,
            at: At::Open,
        }
    }
}

impl Ends for Lent<'_> {
    fn connection(&mut self) -> &mut AsyncPgConnection {
        self.connection
    }

    async fn commit(mut self) -> Result<(), CommitError> {
        self.at = At::Committing;
        let ended = end::commit(self.connection).await;
        self.at = At::Ended;
        ended
    }

    async fn roll_back(mut self) -> Result<(), Cause> {
        // Once sent it is carried out, and nothing can go wrong with it but the connection.
        self.at = At::Ended;
        Ok(batch(self.connection, "ROLLBACK").await?)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let statements: &[&str] = match self.at {
            At::Open => &["ROLLBACK"],
            At::Committing => &CLEAR_AWAY,
            At::Ended => &[],
        };
        for statement in statements {
            // What is polled once is written, and whatever uses the connection next waits for the answer.
            drop(self.connection.batch_execute(statement).now_or_never());
        }
        state::reset(self.connection);
    }
}
