use std::fmt;
use std::time::Duration;

use latchwork_core::{Key, Mode};
use latchwork_postgres::transaction::{XactLockError, XactLockExt as _};
use tokio_postgres::{Client, Transaction};

use crate::party::Hold;
use crate::server::{Database, connect};
use crate::{Failure, Party, View, World};

/// Transaction scope on PostgreSQL: each party has a connection, and each of its holds is a transaction.
#[derive(Debug)]
pub struct Transactions {
    database: Database,
}

impl World for Transactions {
    type Party = Client;

    const QUEUES: bool = true;

    const LINGERS: bool = true;

    async fn start() -> Self {
        Self {
            database: Database::shared().await,
        }
    }

    async fn party(&self) -> Client {
        connect(&self.database.url()).await
    }

    async fn view(&self) -> View {
        self.database.view().await
    }

    async fn end_holders_of(&self, key: Key) {
        self.database.terminate_holders_of(key).await;
    }

    async fn complaints(&self) -> Vec<String> {
        self.database.complaints()
    }

    fn allow(&self, words: &'static str, most: usize) {
        self.database.allow(words, most);
    }

    /// There is no gate: all that could be left is in the server.
    fn leftovers(&self) -> Option<String> {
        None
    }

    async fn end(self) {}
}

impl From<XactLockError> for Failure {
    fn from(error: XactLockError) -> Self {
        match error {
            XactLockError::TimedOut { .. } => Self::TimedOut,
            error => Self::Other(error.into()),
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Other(error.into())
    }
}

/// A transaction that holds a key.
pub struct Transacted<'a>(Transaction<'a>);

impl fmt::Debug for Transacted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transacted")
    }
}

impl Party for Client {
    type Hold<'a> = Transacted<'a>;

    async fn try_hold(&mut self, key: Key, mode: Mode) -> Result<Option<Transacted<'_>>, Failure> {
        let transaction = self.transaction().await?;
        let held = match mode {
            Mode::Exclusive => transaction.try_xact_lock(key).await?,
            Mode::Shared => transaction.try_xact_lock_shared(key).await?,
        };
        Ok(held.then_some(Transacted(transaction)))
    }

    async fn hold(&mut self, key: Key, mode: Mode, limit: Option<Duration>) -> Result<Transacted<'_>, Failure> {
        let transaction = self.transaction().await?;
        let lock = match mode {
            Mode::Exclusive => transaction.xact_lock(key),
            Mode::Shared => transaction.xact_lock_shared(key),
        };
        match limit {
            Some(limit) => lock.within(limit).await?,
            None => lock.without_limit().await?,
        }
        Ok(Transacted(transaction))
    }

    /// A ROLLBACK goes before whatever comes later on the connection.
    async fn come_to_rest(&mut self) {
        self.batch_execute("").await.unwrap();
    }
}

impl Hold for Transacted<'_> {
    async fn give_up(self) {
        if fastrand::bool() {
            self.0.commit().await.unwrap();
        } else {
            self.0.rollback().await.unwrap();
        }
    }
}
