//! A transaction that is just begun.

use std::ops::Deref;

use latchwork_core::{
    sqlstate::Condition,
    xact::{XactLockError, XactWait},
};
use sea_orm::{
    DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, RuntimeErr, TransactionTrait as _,
    sqlx::{Executor as _, PgPool},
};
use tokio::{runtime::Handle, spawn};
use tracing::Instrument as _;

use crate::{
    end, failure,
    wire::{self, NOT_POSTGRES, Unanswered},
};

/// An open transaction. Dropped, on whichever thread, it is rolled back on its way to the pool.
pub(crate) struct Open {
    /// `None` only while it is dropped.
    transaction: Option<DatabaseTransaction>,
    /// The driver gives a connection back by a task.
    runtime: Handle,
}

impl Open {
    fn new(transaction: DatabaseTransaction) -> Self {
        Self {
            transaction: Some(transaction),
            runtime: Handle::current(),
        }
    }
}

impl Deref for Open {
    type Target = DatabaseTransaction;

    fn deref(&self) -> &DatabaseTransaction {
        self.transaction
            .as_ref()
            .expect("a transaction is there until it is dropped")
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _entered = self.runtime.enter();
        drop(self.transaction.take());
    }
}

/// Begins a transaction in READ COMMITTED and tries once for its locks. The inner result is what came of the try.
///
/// May be dropped at any moment: BEGIN runs in a task of its own, and the statement after it ends before the ROLLBACK.
pub(crate) async fn open(
    database: &DatabaseConnection,
    wait: &mut XactWait,
) -> Result<(Open, Result<(), XactLockError>), DbErr> {
    if database.get_database_backend() != DbBackend::Postgres {
        return Err(internal(NOT_POSTGRES));
    }
    let pool = database.get_postgres_connection_pool();
    for _ in 0..=pool.options().get_max_connections() {
        let open = match begin(database).await {
            Ok(open) => open,
            Err(error) if failure::condition(&error) == Some(Condition::TransactionAborted) => {
                close_aborted(pool).await?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let statement = match wait.next() {
            Ok(Some(statement)) => statement,
            settled => return Ok((open, settled.map(drop))),
        };
        match wire::send(&open, &statement, ALONE_AND_COMMITTED).await {
            Err(Unanswered::Failed(error)) if failure::condition(&error) == Some(Condition::InTransaction) => {
                // Somebody has left it open, which is not ours to commit.
                end::roll_back(&open).await?;
            }
            answer => return Ok((open, wire::hear(wait, answer))),
        }
    }
    Err(internal(
        "each connection of the pool came with a transaction of somebody else's",
    ))
}

/// A `begin` that is dropped midway leaves the pooled connection inside a transaction that the driver does not know of.
async fn begin(database: &DatabaseConnection) -> Result<Open, DbErr> {
    let database = database.clone();
    let begins = async move { database.begin().await.map(Open::new) };
    spawn(begins.in_current_span()).await.map_err(|error| internal(error))?
}

/// Looks at one connection of the pool, and closes it if somebody has left it in an aborted transaction, which the
/// driver knows nothing of and would give to one borrower after the other.
async fn close_aborted(pool: &PgPool) -> Result<(), DbErr> {
    let mut connection = pool
        .acquire()
        .await
        .map_err(|error| DbErr::Conn(RuntimeErr::SqlxError(error.into())))?;
    if connection.execute("SELECT 1").await.is_err() {
        // What comes of it is all the same, since it is out of the pool.
        drop(connection.close().await);
    }
    Ok(())
}

fn internal(what: impl ToString) -> DbErr {
    DbErr::Conn(RuntimeErr::Internal(what.to_string()))
}

/// Goes before the first statement. The level can only be changed before the first query of a transaction, and outside
/// of savepoints; since one of the two lines changes it, they fail on a connection that came with a transaction in which
/// something was done. The setting goes with the transaction, whoever ends it.
const ALONE_AND_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
     SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL latchwork.transaction = 'open'; ";
