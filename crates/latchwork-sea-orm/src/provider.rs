//! Transactions for HTTP requests, on connections of SeaORM's pool.

mod pooled;

use std::{error::Error, fmt};

use latchwork_core::{
    sqlstate::Condition,
    xact::{KeySet, XactLockError, XactRequest, XactWait},
};
use latchwork_http::{
    bytes::Bytes,
    tx::{SqlValue, TxError, TxProvider, TxRequest, TxRow},
};
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DbBackend, DbErr, QueryResult, Statement, Value,
    sqlx::{Row as _, TypeInfo as _, ValueRef as _, postgres::PgRow},
};
use tokio::time::{Instant, timeout_at};

use crate::{
    begin,
    end::{self, Ended},
    failure, wire,
};

pub use pooled::PooledTx;

/// Opens a transaction for each request on a connection of SeaORM's pool: for
/// [`TxLockPolicy`](latchwork_http::TxLockPolicy) and the layers that wear it.
///
/// A request has its connection from before its handler runs until its transaction has ended, so the pool's size is how
/// many run or wait at once. Its handler works on that connection; a pool of one serves one request after the other.
///
/// A rollback undoes what belongs to the transaction. What a handler does to the session, such as `SET`, `LISTEN` or a
/// lock of session scope, stays on the pooled connection.
///
/// # Examples
///
/// ```no_run
/// use latchwork_http::tx::{TxProvider, TxRequest};
/// use latchwork_sea_orm::{Key, SeaOrmTx};
/// use sea_orm::{ConnectionTrait as _, DatabaseConnection};
///
/// # async fn example(db: DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let provider = SeaOrmTx::from(db);
/// if let Some(tx) = provider.begin(TxRequest::new(Key::bigint(42))).await? {
///     tx.execute_unprepared("UPDATE orders SET paid = true WHERE id = 42").await?;
///     SeaOrmTx::commit(tx).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SeaOrmTx {
    database: DatabaseConnection,
}

impl From<DatabaseConnection> for SeaOrmTx {
    fn from(database: DatabaseConnection) -> Self {
        Self { database }
    }
}

impl fmt::Debug for SeaOrmTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeaOrmTx").field("database", &self.database).finish()
    }
}

impl TxProvider for SeaOrmTx {
    type Tx = PooledTx;

    /// A request that is abandoned while the server waits for the lock keeps its connection to the end of the slice, a
    /// little more than a second. One that is abandoned before it has a connection leaves its place in the pool's queue
    /// when its turn has come.
    async fn begin(&self, request: TxRequest) -> Result<Option<PooledTx>, TxError> {
        let begun = Instant::now();
        let keys = KeySet::from(request.key());
        let wait = || {
            let asked = XactRequest::new(keys.clone()).with_mode(request.mode());
            let limit = request.wait().unwrap_or_default();
            XactWait::within(asked, Some(limit.saturating_sub(begun.elapsed())))
        };
        let opened = timeout_at(begun + request.answer_within(), begin::open(&self.database, wait)).await;
        let (mut open, tried) = opened.map_err(TxError::unavailable)?.map_err(TxError::unavailable)?;
        let granted = match tried {
            Ok(mut wait) => wire::run(&open, &mut wait, || !request.is_abandoned()).await,
            Err(error) => Err(error),
        };
        match granted {
            Ok(true) => {
                open.has_locked(&XactRequest::new(keys.clone()).with_mode(request.mode()));
                Ok(Some(PooledTx::new(open, request.answer_within())))
            }
            Ok(false) | Err(XactLockError::TimedOut { .. }) => {
                // So that its connection is there for the next request.
                let ended = open.roll_back(request.answer_within()).await;
                ended.map(|()| None).map_err(TxError::unavailable)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn query<'a>(
        tx: &'a mut PooledTx,
        sql: &'a str,
        values: &'a [SqlValue<'a>],
    ) -> Result<Option<TxRow>, TxError> {
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, sql, values.iter().map(parameter));
        // Whoever waits for it gives up then; the rollback that follows ends the session.
        let rows = tx.in_time(tx.query_all_raw(statement)).await;
        let rows = rows.map_err(TxError::unavailable)?.map_err(from_statement)?;
        let row = rows.first().and_then(QueryResult::try_as_pg_row);
        row.map(columns).transpose().map_err(TxError::other)
    }

    async fn commit(tx: PooledTx) -> Result<(), TxError> {
        let asked = Instant::now();
        let ended = tx.in_time(end::commit(&tx)).await;
        match &ended {
            // Nothing is stored, whatever comes of it.
            Ok(Ended::Aborted(refusal)) => drop(tx.in_time(end::settle(&tx, refusal)).await),
            // It may be behind what the handler has left running.
            Err(_) => tx.end_what_runs(asked.into_std()).await,
            Ok(_) => {}
        }
        tx.has_ended();
        match ended.map_err(TxError::outcome_unknown)? {
            Ended::Committed => Ok(()),
            Ended::Aborted(error) => Err(TxError::aborted(error)),
            Ended::NotOurs => Err(TxError::outcome_unknown(NOT_OURS)),
            Ended::Unknown(error) => Err(TxError::outcome_unknown(error)),
        }
    }

    /// A statement of a handler that was dropped runs on in the server, and ROLLBACK waits for its end. After the
    /// request's limit the server's session is ended, so that the lock does not outlive the request by more.
    async fn rollback(tx: PooledTx) -> Result<(), TxError> {
        tx.roll_back().await.map_err(TxError::unavailable)
    }
}

fn from_statement(error: DbErr) -> TxError {
    match failure::condition(&error) {
        _ if failure::is_lost(&error) => TxError::unavailable(error),
        Some(Condition::TransactionAborted) => TxError::aborted(error),
        Some(Condition::TableMissing | Condition::Forbidden) => TxError::setup(error),
        _ => TxError::other(error),
    }
}

fn parameter(value: &SqlValue<'_>) -> Value {
    match value {
        SqlValue::Text(text) => (*text).into(),
        SqlValue::Bytes(bytes) => (*bytes).into(),
        SqlValue::Int(int) => (*int).into(),
        _ => unreachable!("the two crates are released together"),
    }
}

fn columns(row: &PgRow) -> Result<TxRow, Box<dyn Error + Send + Sync>> {
    (0..row.len()).map(|at| column(row, at)).collect()
}

/// The bytes of a column, where they are the same in both formats of the wire.
fn column(row: &PgRow, at: usize) -> Result<Option<Bytes>, Box<dyn Error + Send + Sync>> {
    let value = row.try_get_raw(at)?;
    if !matches!(value.type_info().name(), "TEXT" | "BYTEA") {
        return Err(format!("column {at} is neither text nor bytea; cast it in the statement").into());
    }
    if value.is_null() {
        return Ok(None);
    }
    Ok(Some(Bytes::copy_from_slice(value.as_bytes()?)))
}

const NOT_OURS: &str = "the handler has ended the transaction itself; leave COMMIT and ROLLBACK to the layer";
