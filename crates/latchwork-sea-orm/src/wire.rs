//! Running what [`XactWait`] says on a transaction of SeaORM.
//!
//! SeaORM prepares every query that returns rows, once for each text and connection, which takes a round trip more and a
//! place in the cache of statements. What it sends as it is returns no rows, only their number. So the answer comes as a
//! number of rows.

use latchwork_core::xact::{XactLockError, XactStatement, XactWait};
use sea_orm::{ConnectionTrait as _, DatabaseTransaction, DbBackend, DbErr};
use tokio::time::timeout;

use crate::failure;

/// Goes on until it is decided, or until nobody wants it any more, which is `false` too.
pub(crate) async fn run(
    transaction: &DatabaseTransaction,
    wait: &mut XactWait,
    is_wanted: impl Fn() -> bool + Send,
) -> Result<bool, XactLockError> {
    if transaction.get_database_backend() != DbBackend::Postgres {
        return Err(wait.failed(None, NOT_POSTGRES));
    }
    while is_wanted()
        && let Some(statement) = wait.next()?
    {
        let answer = send(transaction, &statement, "").await;
        hear(wait, answer)?;
    }
    Ok(wait.is_granted())
}

/// Why a statement has no answer of ours.
pub(crate) enum Unanswered {
    Failed(DbErr),
    Silent,
}

/// Sends a statement after others without rows, and returns the answer, which is a number of rows.
pub(crate) async fn send(
    transaction: &DatabaseTransaction,
    statement: &XactStatement,
    before: &str,
) -> Result<u64, Unanswered> {
    let prepare = statement.prepare().map(|prepare| format!("{prepare}; "));
    let query = format!("{before}{}{}", prepare.unwrap_or_default(), statement.ask_rows());
    match timeout(statement.answer_within(), transaction.execute_unprepared(&query)).await {
        Ok(Ok(done)) => Ok(done.rows_affected()),
        Ok(Err(error)) => Err(Unanswered::Failed(error)),
        Err(_) => Err(Unanswered::Silent),
    }
}

/// Hands the answer back to the wait.
pub(crate) fn hear(wait: &mut XactWait, answer: Result<u64, Unanswered>) -> Result<(), XactLockError> {
    match answer {
        Ok(rows) => wait.answered_by_rows(rows),
        Err(Unanswered::Silent) => Err(wait.no_answer()),
        Err(Unanswered::Failed(error)) if failure::is_lost(&error) => Err(wait.lost(error)),
        Err(Unanswered::Failed(error)) => {
            let sqlstate = failure::sqlstate(&error);
            Err(wait.failed(sqlstate.as_deref(), error))
        }
    }
}

pub(crate) const NOT_POSTGRES: &str = "this is no connection to PostgreSQL, where the locks are";
