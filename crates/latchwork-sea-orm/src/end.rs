//! How a transaction ends.
//!
//! SeaORM's own COMMIT says nothing of an aborted transaction, which it "commits"; and with a nested transaction still
//! open it releases a savepoint, and says that all is committed. So ours is a statement. Since SeaORM does not know of
//! it, it sends a ROLLBACK when the transaction is dropped; so a transaction is begun for that, in the same statement.

use latchwork_core::sqlstate::Condition;
use sea_orm::{ConnectionTrait as _, DatabaseTransaction, DbErr};

use crate::failure;

/// What came of a commit.
pub(crate) enum Ended {
    Committed,
    /// The server has rolled back.
    Aborted(DbErr),
    /// It had ended before.
    NotOurs,
    /// The connection ended, or does not answer as it should.
    Unknown(DbErr),
}

/// Commits, and says so only if it was ours and alive. One round trip.
///
/// The transaction is to be dropped afterwards; if it is [`Aborted`](Ended::Aborted), once it is [settled](settle).
pub(crate) async fn commit(transaction: &DatabaseTransaction) -> Ended {
    match transaction.execute_unprepared(COMMIT).await {
        Ok(done) if done.rows_affected() == 1 => Ended::Committed,
        Ok(_) => Ended::NotOurs,
        Err(error) if is_not_open(&error) => Ended::NotOurs,
        Err(error) if failure::is_refusal(&error) => Ended::Aborted(error),
        Err(error) => Ended::Unknown(error),
    }
}

/// Ends what a refused commit has left, so that nothing is locked afterwards.
pub(crate) async fn settle(transaction: &DatabaseTransaction, refusal: &DbErr) -> Result<(), DbErr> {
    let is_open = failure::condition(refusal) == Some(Condition::TransactionAborted);
    if is_open || transaction.execute_unprepared("BEGIN").await.is_err() {
        return roll_back(transaction).await;
    }
    Ok(())
}

/// Rolls back, also what a nested transaction has left open. The transaction is to be dropped afterwards.
pub(crate) async fn roll_back(transaction: &DatabaseTransaction) -> Result<(), DbErr> {
    match transaction.execute_unprepared(ROLLBACK).await {
        Err(error) if is_not_open(&error) => Ok(()),
        // Of a statement that was dropped midway: the driver hands its error to the next one, which it does not send.
        Err(error) if failure::is_refusal(&error) => transaction.execute_unprepared(ROLLBACK).await.map(drop),
        done => done.map(drop),
    }
}

/// no_active_sql_transaction, as a statement that chains says.
fn is_not_open(error: &DbErr) -> bool {
    failure::sqlstate(error).as_deref() == Some("25P01")
}

/// One row if the transaction is the one that was begun. In an aborted one the question fails, and COMMIT is not run.
///
/// A transaction that is chained begins in the same statement that commits: between two statements a cancel request
/// could fail the second, though the first has committed.
pub(crate) const COMMIT: &str = "SELECT WHERE pg_catalog.current_setting('latchwork.transaction', true) \
     OPERATOR(pg_catalog.=) 'open'::pg_catalog.text; COMMIT AND CHAIN";
/// Chains only if there was a transaction. SeaORM knows of none, and sends no ROLLBACK later, when a `begin()` of a nested
/// one was dropped midway, for then it has rolled all back.
pub(crate) const ROLLBACK: &str = "ROLLBACK AND CHAIN";
