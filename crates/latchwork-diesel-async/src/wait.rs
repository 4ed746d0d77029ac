//! Running what [`XactWait`] says on a connection of diesel-async.

use std::time::Duration;

use diesel::QueryResult;
use diesel_async::{AsyncPgConnection, RunQueryDsl as _, SimpleAsyncConnection as _};
use futures_util::future::join;
use latchwork_core::xact::{ServerSide, XactLockError, XactStatement, XactWait};
use tokio::time::timeout;

use crate::{
    end::Cause,
    error::{self, is_lost, message, sqlstate},
    sql::{self, Answer, Answered, Attempt},
    state,
};

/// Runs a wait on a transaction of the caller's.
pub(crate) async fn run(connection: &mut AsyncPgConnection, mut wait: XactWait) -> Result<bool, XactLockError> {
    match state::depth(connection) {
        Ok(0) => Err(wait.no_transaction()),
        Ok(_) => go_on(connection, &mut wait).await,
        Err(error) => Err(wait.failed(None, error)),
    }
}

/// Runs what is left of a wait, and says whether the transaction has its locks.
pub(crate) async fn go_on(connection: &AsyncPgConnection, wait: &mut XactWait) -> Result<bool, XactLockError> {
    while step(connection, wait).await? {}
    Ok(wait.is_granted())
}

/// Sends one statement of a wait, and says whether there was one to send.
pub(crate) async fn step(connection: &AsyncPgConnection, wait: &mut XactWait) -> Result<bool, XactLockError> {
    let Some(statement) = wait.next()? else {
        return Ok(false);
    };
    let sent = timeout(statement.answer_within(), send(connection, &statement, false)).await;
    let answer = sent.map_err(|_| wait.no_answer())?;
    let (text, ..) = heard(connection, wait, &statement, answer).await?;
    wait.answered(&text.unwrap_or_default())?;
    Ok(true)
}

/// What came of beginning.
pub(crate) enum First {
    Ours(
        #[cfg_attr(
            not(any(feature = "deadpool", feature = "bb8")),
            expect(dead_code, reason = "only sessions of pools are ended from elsewhere")
        )]
        ServerSide,
    ),
    /// BEGIN was refused, as it is where somebody has left a transaction open.
    NotOurs(Cause),
}

/// Begins, and sends the first statement of a wait in the same round trip.
pub(crate) async fn first(connection: &AsyncPgConnection, wait: &mut XactWait) -> Result<First, XactLockError> {
    let Some(statement) = wait.next_after_begin()? else {
        return Err(wait.no_answer());
    };
    let both = join(batch(connection, sql::BEGIN), send(connection, &statement, true));
    let sent = timeout(statement.answer_within(), both).await;
    let (begun, answer) = sent.map_err(|_| wait.no_answer())?;
    if let Err(error) = begun {
        return Ok(First::NotOurs(error.into()));
    }
    let (text, pid, begun) = heard(connection, wait, &statement, answer).await?;
    wait.answered(&text.unwrap_or_default())?;
    Ok(First::Ours(ServerSide::new(pid, begun)))
}

/// Sends statements that have no rows to be read, in one message.
pub(crate) async fn batch(mut connection: &AsyncPgConnection, sql: &str) -> QueryResult<()> {
    connection.batch_execute(sql).await
}

/// Sends a question, and asks for its answer in the same round trip.
///
/// The server finishes a statement that is dropped midway, and whatever the connection does next waits for that.
async fn send(mut connection: &AsyncPgConnection, statement: &XactStatement, begins: bool) -> QueryResult<Answered> {
    if let Some((ask, key)) = statement.ask_with_parameters() {
        return Attempt::new(&ask, key, begins).get_result(&mut connection).await;
    }
    let ask = sql::keeping(statement.prepare(), &statement.ask(), begins);
    let (asked, answer) = join(batch(connection, &ask), Answer.get_result(&mut connection)).await;
    asked.and(answer)
}

async fn heard(
    connection: &AsyncPgConnection,
    wait: &XactWait,
    statement: &XactStatement,
    answer: QueryResult<Answered>,
) -> Result<Answered, XactLockError> {
    let error = match answer {
        Ok(answer) => return Ok(answer),
        Err(error) if is_lost(&error) => return Err(wait.lost(error)),
        Err(error) => error,
    };
    // It has no SQLSTATE, so the next statement shows what has become of the transaction and the connection.
    let next = match timeout(statement.answer_within(), batch(connection, "SELECT 1")).await {
        Ok(Err(next)) if is_lost(&next) => return Err(wait.lost(error)),
        Ok(next) => next.err(),
        Err(_) => return Err(wait.no_answer()),
    };
    // In a transaction that was aborted before, every statement fails with the same words.
    let was_aborted = next.is_some_and(|next| message(&next) == message(&error));
    let code = if was_aborted {
        Some(error::ABORTED)
    } else {
        sqlstate(&error)
    };
    Err(wait.failed(code, error))
}

/// How long an end may take where nobody says so: longer than any slice of a wait.
#[cfg_attr(
    not(any(feature = "deadpool", feature = "bb8")),
    expect(dead_code, reason = "only pools have an end in a task")
)]
pub(crate) const CLEARED_WITHIN: Duration = Duration::from_secs(2);
