//! Beginning a transaction with its lock, on a thread that may block.

use std::time::Instant;

use diesel::{
    PgConnection, QueryableByName, RunQueryDsl as _,
    connection::SimpleConnection as _,
    r2d2::{ConnectionManager, PooledConnection},
    result::QueryResult,
    sql_query,
    sql_types::{Integer, Nullable, Text},
};
use latchwork_core::xact::{ServerSide, XactLockError, XactRequest, XactStatement, XactWait};
use latchwork_http::tx::{TxError, TxRequest};
use tokio::sync::OwnedSemaphorePermit;

use super::PgPool;
use crate::{begin, errors, lock, state};

/// An open transaction with its lock, and its place among those that may have a connection. Dropped, its connection
/// closes, since the pool takes none back that is inside of a transaction.
pub(super) struct Open {
    /// First, so that it is back before somebody else may ask for it.
    pub(super) connection: PooledConnection<ConnectionManager<PgConnection>>,
    pub(super) server_side: ServerSide,
    _turn: OwnedSemaphorePermit,
}

impl Open {
    pub(super) fn roll_back(mut self) {
        state::roll_back(&mut self.connection);
    }
}

/// `None` if others have the lock, or nobody wants it any more.
pub(super) fn open(
    pool: &PgPool,
    request: &TxRequest,
    begun: Instant,
    turn: OwnedSemaphorePermit,
) -> Result<Option<Open>, TxError> {
    let is_wanted = || !request.is_abandoned();
    let patience = request.answer_within().saturating_sub(begun.elapsed());
    let mut connection = pool.get_timeout(patience).map_err(TxError::unavailable)?;
    if !is_wanted() {
        return Ok(None);
    }
    begin(&mut connection).map_err(TxError::unavailable)?;
    let asked = XactRequest::new(request.key()).with_mode(request.mode());
    let wait = match request.wait() {
        Some(limit) => XactWait::within(asked, Some(limit.saturating_sub(begun.elapsed()))),
        None => XactWait::attempt(asked),
    };
    match take(&mut connection, wait, is_wanted) {
        Ok(Some(server_side)) => Ok(Some(Open {
            connection,
            server_side,
            _turn: turn,
        })),
        Ok(None) => {
            state::roll_back(&mut connection);
            Ok(None)
        }
        Err(error) => {
            state::roll_back(&mut connection);
            if error.is_timeout() {
                return Ok(None);
            }
            Err(error.into())
        }
    }
}

/// What somebody has left open on the connection is rolled back by the attempt that finds it.
fn begin(connection: &mut PgConnection) -> QueryResult<()> {
    match begin::begin(connection, &begin::alone()) {
        Err(error) if !errors::is_lost(&error) => begin::begin(connection, &begin::alone()),
        begun => begun,
    }
}

/// Takes the lock, and asks with the first statement for it what tells the transaction.
fn take(
    connection: &mut PgConnection,
    mut wait: XactWait,
    is_wanted: impl Fn() -> bool,
) -> Result<Option<ServerSide>, XactLockError> {
    let Some(statement) = wait.next()? else {
        return Err(wait.no_answer());
    };
    let row = first(connection, &statement).map_err(|error| errors::lock(connection, &wait, error))?;
    wait.answered(&row.answer.unwrap_or_default())?;
    let is_granted = lock::run_while(connection, &mut wait, is_wanted)?;
    Ok(is_granted.then_some(ServerSide::new(row.pid, row.begun)))
}

fn first(connection: &mut PgConnection, statement: &XactStatement) -> QueryResult<First> {
    if let Some(prepare) = statement.prepare() {
        connection.batch_execute(prepare)?;
    }
    let with_facts = format!(
        "SELECT asked.answer AS answer, pg_catalog.pg_backend_pid() AS pid, \
         CURRENT_TIMESTAMP::pg_catalog.text AS begun FROM ({}) AS asked",
        statement.ask()
    );
    sql_query(with_facts).get_result(connection)
}

#[derive(QueryableByName)]
struct First {
    #[diesel(sql_type = Nullable<Text>)]
    answer: Option<String>,
    #[diesel(sql_type = Integer)]
    pid: i32,
    #[diesel(sql_type = Text)]
    begun: String,
}
