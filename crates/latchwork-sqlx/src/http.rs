//! Transactions for HTTP requests.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use latchwork_core::{
    sqlstate::Condition,
    xact::{XactRequest, XactWait},
};
use latchwork_http::{
    TxProvider,
    bytes::Bytes,
    tx::{SqlValue, TxError, TxRequest, TxRow},
};
use sqlx::{
    AssertSqlSafe, Error, PgPool, Postgres, Row, Transaction, TypeInfo, ValueRef,
    postgres::{PgRow, PgValueRef},
};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    end::{CommitError, Ends},
    error::{condition, is_broken},
    pooled::{OpenError, Pooled},
    wait,
};

/// Opens a transaction for each request on a connection of a pool: for
/// [`TxLockPolicy`](latchwork_http::TxLockPolicy) and the layers that wear it.
///
/// A request has its connection from before its handler runs until its transaction has ended, so the pool's size is how
/// many run or wait at once. Its handler works on that connection; a pool of one serves one request after the other.
///
/// A rollback undoes what belongs to the transaction. What a handler does to the session, such as `SET`, `LISTEN` or a
/// lock of session scope, stays on the pooled connection; an `after_release` of the pool can clear it away.
///
/// # Examples
///
/// ```no_run
/// use latchwork_http::tx::{TxProvider, TxRequest};
/// use latchwork_sqlx::{Key, SqlxTx};
///
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let provider = SqlxTx::from(pool);
/// if let Some(mut tx) = provider.begin(TxRequest::new(Key::bigint(42))).await? {
///     sqlx::query("UPDATE orders SET paid = true WHERE id = 42").execute(&mut **tx).await?;
///     SqlxTx::commit(tx).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqlxTx {
    pool: PgPool,
}

impl From<PgPool> for SqlxTx {
    fn from(pool: PgPool) -> Self {
        Self { pool }
    }
}

impl fmt::Debug for SqlxTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxTx").field("pool", &self.pool).finish()
    }
}

/// An open transaction on a connection of a pool. Dropped, it is rolled back, and its connection goes back to the pool
/// then; if that takes longer than the request's limit, the connection is closed and its session ended.
///
/// It is a `sqlx::Transaction` that cannot be committed or rolled back, since that takes it by value. Nor may statements
/// end it: a COMMIT or ROLLBACK of the handler's is found out at the end and reported as an outcome that is not known.
/// For a savepoint call `begin` on it.
///
/// More locks of transaction scope can be taken on it with [`XactLockExt`](crate::XactLockExt).
///
/// ```compile_fail,E0507
/// async fn handler(mut tx: latchwork_sqlx::PooledTx) {
///     let committed = tx.commit().await;
/// }
/// ```
#[derive(Debug)]
#[must_use = "dropping it rolls back"]
pub struct PooledTx(Pooled);

impl Deref for PooledTx {
    type Target = Transaction<'static, Postgres>;

    fn deref(&self) -> &Transaction<'static, Postgres> {
        self.0.as_transaction()
    }
}

impl DerefMut for PooledTx {
    fn deref_mut(&mut self) -> &mut Transaction<'static, Postgres> {
        self.0.transaction()
    }
}

impl TxProvider for SqlxTx {
    type Tx = PooledTx;

    /// A request that is abandoned while the server waits for the lock keeps its connection to the end of the slice, a
    /// little more than a second: to close it would leave the server waiting all the same, and let the pool open
    /// another beside it.
    async fn begin(&self, request: TxRequest) -> Result<Option<PooledTx>, TxError> {
        let begun = Instant::now();
        let asked = XactRequest::new(request.key()).with_mode(request.mode());
        let wait = || match request.wait() {
            Some(limit) => XactWait::within(asked.clone(), Some(limit.saturating_sub(begun.elapsed()))),
            None => XactWait::attempt(asked.clone()),
        };
        let opens = Pooled::open(&self.pool, request.answer_within(), wait);
        let opened = timeout_at(begun + request.answer_within(), opens).await;
        let (mut tx, wait) = opened.map_err(TxError::unavailable)?.map_err(from_open)?;
        if granted(&mut tx, wait, &request).await? {
            return Ok(Some(PooledTx(tx)));
        }
        tx.roll_back().await.map_err(TxError::unavailable)?;
        Ok(None)
    }

    async fn query<'a>(
        tx: &'a mut PooledTx,
        sql: &'a str,
        values: &'a [SqlValue<'a>],
    ) -> Result<Option<TxRow>, TxError> {
        // A statement with a name would outlive its transaction, which poolers in transaction mode do not.
        let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        for value in values {
            query = match value {
                SqlValue::Text(text) => query.bind(*text),
                SqlValue::Bytes(bytes) => query.bind(*bytes),
                SqlValue::Int(int) => query.bind(*int),
                _ => unreachable!("the two crates are released together"),
            };
        }
        // Whoever waits for it gives up then; the rollback that follows ends the session.
        let limit = tx.0.answer_within();
        let row = timeout(limit, query.fetch_optional(&mut ***tx)).await;
        let row = row.map_err(TxError::unavailable)?.map_err(from_statement)?;
        row.as_ref().map(bytes).transpose()
    }

    async fn commit(tx: PooledTx) -> Result<(), TxError> {
        let committed = timeout(tx.0.answer_within(), tx.0.commit()).await;
        match committed.map_err(TxError::outcome_unknown)? {
            Ok(()) => Ok(()),
            Err(CommitError::Aborted(error)) => Err(TxError::aborted(error)),
            Err(CommitError::Unknown(cause)) => Err(TxError::outcome_unknown(cause)),
        }
    }

    /// A statement of a handler that was dropped runs on in the server, and ROLLBACK waits for its end. After the
    /// request's limit the server's session is ended, so that the lock does not outlive the request by more.
    async fn rollback(tx: PooledTx) -> Result<(), TxError> {
        tx.0.roll_back().await.map_err(TxError::unavailable)
    }
}

/// Whether the lock came, before its time ran out or nobody wanted it any more.
async fn granted(tx: &mut Pooled, mut wait: XactWait, request: &TxRequest) -> Result<bool, TxError> {
    while !request.is_abandoned() {
        match wait::step(tx.transaction(), &mut wait).await {
            Ok(true) => {}
            Ok(false) => return Ok(wait.is_granted()),
            Err(error) if error.is_timeout() => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn from_open(error: OpenError) -> TxError {
    match error {
        OpenError::Begin(cause) => TxError::unavailable(cause),
        OpenError::Lock(error) => error.into(),
    }
}

fn from_statement(error: Error) -> TxError {
    if is_broken(&error) {
        return TxError::unavailable(error);
    }
    match condition(&error) {
        Some(Condition::TransactionAborted) => TxError::aborted(error),
        Some(Condition::TableMissing | Condition::Forbidden) => TxError::setup(error),
        _ => TxError::other(error),
    }
}

/// The bytes of each column, where they are the same in both formats of the wire.
fn bytes(row: &PgRow) -> Result<TxRow, TxError> {
    let columns = (0..row.len()).map(|column| {
        let value: PgValueRef<'_> = row.try_get_raw(column).map_err(TxError::other)?;
        if value.is_null() {
            return Ok(None);
        }
        if !matches!(value.type_info().name(), "TEXT" | "BYTEA") {
            return Err(TxError::other("a column of the row is neither text nor bytea; cast it"));
        }
        value
            .as_bytes()
            .map(Bytes::copy_from_slice)
            .map(Some)
            .map_err(TxError::other)
    });
    columns.collect()
}
