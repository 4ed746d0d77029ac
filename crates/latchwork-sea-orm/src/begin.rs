//! How a transaction begins, whatever its connection comes with.

use latchwork_core::{
    sqlstate::Condition,
    xact::{XactLockError, XactWait},
};
use sea_orm::{
    DatabaseConnection, DatabaseConnectionType, DbErr, RuntimeErr, TransactionTrait as _,
    sqlx::{Executor as _, PgPool},
};
use tokio::spawn;
use tracing::Instrument as _;

use crate::{
    failure,
    open::{Open, PATIENCE},
    wire::{self, NOT_POSTGRES, Unanswered},
};

/// Begins a transaction in READ COMMITTED and tries once for its locks, by a wait that is made for that when it has begun.
/// The inner result is what came of the try.
///
/// May be dropped at any moment: BEGIN runs in a task of its own, and the statement after it ends before the ROLLBACK.
pub(crate) async fn open(
    database: &DatabaseConnection,
    wait: impl Fn() -> XactWait,
) -> Result<(Open, Result<XactWait, XactLockError>), DbErr> {
    if !matches!(database.inner, DatabaseConnectionType::SqlxPostgresPoolConnection(_)) {
        return Err(internal(NOT_POSTGRES));
    }
    let pool = database.get_postgres_connection_pool();
    for _ in 0..TRIES_OF_EACH * pool.options().get_max_connections() {
        let open = match begin(database, pool).await {
            Ok(open) => open,
            Err(error) if failure::condition(&error) == Some(Condition::TransactionAborted) => {
                close_aborted(pool).await?;
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut wait = wait();
        let statement = match wait.next_after_begin() {
            Ok(Some(statement)) => statement,
            settled => return Ok((open, settled.map(|_| wait))),
        };
        match wire::send(&open, &statement, ALONE_AND_COMMITTED).await {
            Err(Unanswered::Failed(error)) if failure::condition(&error) == Some(Condition::InTransaction) => {
                // Somebody has left it open, which is not ours to commit.
                drop(open.roll_back(PATIENCE).await);
            }
            answer => {
                let tried = wire::hear(&mut wait, answer);
                return Ok((open, tried.map(|()| wait)));
            }
        }
    }
    Err(internal(
        "each connection of the pool came with a transaction of somebody else's",
    ))
}

/// A `begin` that is dropped midway leaves the pooled connection inside a transaction that the driver does not know of.
async fn begin(database: &DatabaseConnection, pool: &PgPool) -> Result<Open, DbErr> {
    let (database, pool) = (database.clone(), pool.clone());
    let begins = async move {
        let begun = database.begin().await;
        begun.map(|transaction| Open::new(transaction, pool))
    };
    spawn(begins.in_current_span()).await.map_err(internal)?
}

/// Closes the idle connections of a pool that somebody has left in an aborted transaction, which the driver knows nothing
/// of and would give to one borrower after the other.
///
/// Those that are in order are kept meanwhile, or the pool would hand out the same ones again.
async fn close_aborted(pool: &PgPool) -> Result<(), DbErr> {
    let first = pool.acquire().await;
    let mut next = Some(first.map_err(|error| DbErr::Conn(RuntimeErr::SqlxError(error.into())))?);
    let mut in_order = Vec::new();
    while let Some(mut connection) = next {
        if connection.execute("SELECT 1").await.is_ok() {
            in_order.push(connection);
        } else {
            // What comes of it is all the same, since it is out of the pool.
            drop(connection.close().await);
        }
        next = pool.try_acquire();
    }
    Ok(())
}

fn internal(what: impl ToString) -> DbErr {
    DbErr::Conn(RuntimeErr::Internal(what.to_string()))
}

/// One may be on its way back to the pool while the others are looked through.
const TRIES_OF_EACH: u32 = 3;
/// Goes before the first statement. The level can only be changed before the first query of a transaction, and outside
/// of savepoints; since one of the two lines changes it, they fail on a connection that came with a transaction in which
/// something was done. The setting goes with the transaction, whoever ends it.
const ALONE_AND_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
     SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL latchwork.transaction = 'open'; ";
