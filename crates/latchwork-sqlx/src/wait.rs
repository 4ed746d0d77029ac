//! Running what [`XactWait`] says on a connection of sqlx.

use std::time::Duration;

use latchwork_core::xact::{ServerSide, XactLockError, XactWait};
use sqlx::{AssertSqlSafe, Connection, Error, Executor, PgConnection, Row, error::DatabaseError, postgres::PgRow};
use tokio::time::timeout;

use crate::{error::is_broken, sql};

/// Runs a wait on a transaction of the caller's.
pub(crate) async fn run(connection: &mut PgConnection, mut wait: XactWait) -> Result<bool, XactLockError> {
    if !connection.is_in_transaction() {
        return Err(wait.no_transaction());
    }
    go_on(connection, &mut wait).await
}

/// Runs what is left of a wait, and says whether the transaction has its locks.
pub(crate) async fn go_on(connection: &mut PgConnection, wait: &mut XactWait) -> Result<bool, XactLockError> {
    while step(connection, wait).await? {}
    Ok(wait.is_granted())
}

/// Sends one statement of a wait, and says whether there was one to send.
pub(crate) async fn step(connection: &mut PgConnection, wait: &mut XactWait) -> Result<bool, XactLockError> {
    let Some(statement) = wait.next()? else {
        return Ok(false);
    };
    let rows = send(connection, statement.joined(), statement.answer_within(), wait).await?;
    wait.answered(text(rows.first(), 0).unwrap_or_default())?;
    Ok(true)
}

/// Sends the first statement of a wait in a transaction that was just begun with [`sql::BEGIN`].
pub(crate) async fn first(connection: &mut PgConnection, wait: &mut XactWait) -> Result<ServerSide, XactLockError> {
    let Some(statement) = wait.next_after_begin()? else {
        return Err(wait.no_answer());
    };
    let sql = statement.joined_with(sql::FACTS);
    let rows = send(connection, sql, statement.answer_within(), wait).await?;
    let row = rows.first();
    wait.answered(text(row, 0).unwrap_or_default())?;
    let server_side = (|| Some(ServerSide::new(text(row, 1)?.parse().ok()?, text(row, 2)?)))();
    server_side.ok_or_else(|| wait.no_answer())
}

/// The server finishes a statement that is dropped midway, and whatever the connection does next waits for that.
async fn send(
    connection: &mut PgConnection,
    sql: String,
    answer_within: Duration,
    wait: &XactWait,
) -> Result<Vec<PgRow>, XactLockError> {
    match timeout(answer_within, connection.fetch_all(AssertSqlSafe(sql))).await {
        Ok(Ok(rows)) => Ok(rows),
        Ok(Err(error)) if is_broken(&error) => Err(wait.lost(error)),
        Ok(Err(error)) => {
            let code = error.as_database_error().and_then(DatabaseError::code);
            let code = code.map(|code| code.into_owned());
            Err(wait.failed(code.as_deref(), error))
        }
        Err(_) => Err(wait.no_answer()),
    }
}

/// The text in a column of a row, if both are there. A simple query is answered in texts, whatever their type.
pub(crate) fn text(row: Option<&PgRow>, column: usize) -> Option<&str> {
    let value: Result<Option<&str>, Error> = row?.try_get_unchecked(column);
    value.ok().flatten()
}
