//! Transactions for HTTP requests, on connections of a deadpool.

mod locked;
mod on_runtime;
mod pooled;

use std::{fmt, time::Duration};

use bytes::Bytes;
use deadpool_postgres::Pool;
use futures_util::future::join;
use latchwork_core::{
    Mode,
    xact::{XactRequest, XactWait},
};
use latchwork_http::tx::{SqlValue, TxError, TxProvider, TxRequest, TxRow};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::{
    Error, SimpleQueryMessage, SimpleQueryRow,
    error::{DbError, Severity, SqlState},
    types::{FromSql, ToSql, Type},
};

use super::{XactLockError, XactLockExt as _, wait::go_on};
use crate::sqlstate::{Condition, condition};

pub use locked::LockedTransactionExt;
pub use on_runtime::OnRuntime;
pub use pooled::PooledTx;

/// Opens a transaction for each request on a connection of a pool: for
/// [`TxLockPolicy`](latchwork_http::TxLockPolicy) and the layers that wear it.
///
/// A request has its connection from before its handler runs until its transaction has ended, so the pool's size is how
/// many run or wait at once. Its handler works on that connection; a pool of one serves one request after the other.
///
/// A rollback undoes what belongs to the transaction. What a handler does to the session, such as `SET`, `LISTEN` or a
/// lock of session scope, stays on the pooled connection; the pool's `RecyclingMethod::Clean` clears it away.
///
/// # Examples
///
/// ```no_run
/// use latchwork_core::Key;
/// use latchwork_http::tx::{TxProvider, TxRequest};
/// use latchwork_postgres::transaction::DeadpoolTx;
///
/// # async fn example(pool: deadpool_postgres::Pool) -> Result<(), Box<dyn std::error::Error>> {
/// let provider = DeadpoolTx::from(pool);
/// if let Some(transaction) = provider.begin(TxRequest::new(Key::bigint(42))).await? {
///     transaction.execute("UPDATE orders SET paid = true WHERE id = 42", &[]).await?;
///     DeadpoolTx::commit(transaction).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DeadpoolTx {
    pool: Pool,
}

impl From<Pool> for DeadpoolTx {
    fn from(pool: Pool) -> Self {
        Self { pool }
    }
}

impl fmt::Debug for DeadpoolTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadpoolTx").field("pool", &self.pool.status()).finish()
    }
}

impl TxProvider for DeadpoolTx {
    type Tx = PooledTx;

    /// A request that is abandoned while the server waits for the lock keeps its connection to the end of the slice, a
    /// little more than a second: to close it would leave the server waiting all the same, and let the pool open
    /// another beside it.
    async fn begin(&self, request: TxRequest) -> Result<Option<PooledTx>, TxError> {
        let begun = Instant::now();
        let (tx, granted) = open(&self.pool, &request, begun + request.answer_within()).await?;
        let granted = match request.wait() {
            Some(limit) if matches!(granted, Ok(false)) => wait(&tx, &request, begun + limit).await,
            _ => granted,
        };
        match granted {
            Ok(true) => Ok(Some(tx)),
            Ok(false) => {
                Self::rollback(tx).await?;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn query<'a>(
        tx: &'a mut PooledTx,
        sql: &'a str,
        values: &'a [SqlValue<'a>],
    ) -> Result<Option<TxRow>, TxError> {
        let values: Vec<_> = values.iter().map(parameter).collect();
        let values: Vec<_> = values
            .iter()
            .map(|(value, kind)| (&**value as _, kind.clone()))
            .collect();
        // Whoever waits for it gives up then; the rollback that follows ends the session.
        let rows = tx.in_time(tx.query_typed(sql, &values)).await;
        let rows = rows.map_err(TxError::unavailable)?.map_err(from_statement)?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let columns = (0..row.len()).map(|column| row.try_get::<_, Option<Raw>>(column));
        let columns = columns.map(|column| column.map(|raw| raw.map(|Raw(bytes)| bytes)));
        columns.collect::<Result<_, _>>().map(Some).map_err(TxError::other)
    }

    async fn commit(mut tx: PooledTx) -> Result<(), TxError> {
        if tx.is_closed() {
            return Err(TxError::unavailable("the connection had ended before COMMIT"));
        }
        tx.spares(COMMIT);
        let ended = match tx.in_time(tx.simple_query(COMMIT)).await {
            Ok(ended) => judge(ended),
            Err(elapsed) => {
                tx.terminate().await;
                return Err(TxError::outcome_unknown(elapsed));
            }
        };
        let is_clean = match &ended {
            Ok(()) => true,
            Err(TxError::Aborted(_)) => matches!(tx.in_time(clear_away(&tx)).await, Ok(Ok(()))),
            Err(_) => false,
        };
        if is_clean {
            tx.reuse();
        }
        ended
    }

    /// A statement of a handler that was dropped runs on in the server, and ROLLBACK waits for its end. After the
    /// request's limit the server's session is ended, so that the lock does not outlive the request by more.
    async fn rollback(tx: PooledTx) -> Result<(), TxError> {
        if tx.is_closed() {
            return Ok(());
        }
        match tx.in_time(tx.batch_execute("ROLLBACK")).await {
            Ok(ended) => ended.map_err(TxError::unavailable)?,
            Err(elapsed) => {
                tx.terminate().await;
                return Err(TxError::unavailable(elapsed));
            }
        }
        tx.reuse();
        Ok(())
    }
}

/// Begins, and tries once for the lock. The connection is closed if this is dropped midway.
async fn open(
    pool: &Pool,
    request: &TxRequest,
    deadline: Instant,
) -> Result<(PooledTx, Result<bool, XactLockError>), TxError> {
    let lock = XactRequest::new(request.key()).with_mode(request.mode());
    let begun = begin_unless(
        pool,
        request.answer_within(),
        || XactWait::attempt(lock.clone()),
        || request.is_abandoned(),
    );
    let begun = timeout_at(deadline, begun).await;
    begun.map_err(|_| TxError::unavailable("no connection of the pool came free, or answered, in time"))?
}

/// Begins, with the first statement of a wait in the same round trip, and waits. The connection is closed if this is
/// dropped midway. What comes later may take `answer_within`.
async fn begin(
    pool: &Pool,
    answer_within: Duration,
    wait: impl Fn() -> XactWait + Send,
) -> Result<(PooledTx, Result<bool, XactLockError>), TxError> {
    begin_unless(pool, answer_within, wait, || false).await
}

async fn begin_unless(
    pool: &Pool,
    answer_within: Duration,
    wait: impl Fn() -> XactWait + Send,
    abandoned: impl Fn() -> bool + Send,
) -> Result<(PooledTx, Result<bool, XactLockError>), TxError> {
    loop {
        let client = pool.get().await.map_err(TxError::unavailable)?;
        let mut tx = PooledTx::new(client, answer_within);
        if abandoned() {
            tx.reuse();
            return Err(TxError::unavailable("nobody waits for the transaction any more"));
        }
        let mut wait = wait();
        let Ok(Some(first)) = wait.next_after_begin() else {
            return Err(TxError::other("a wait has no first statement"));
        };
        // One message, and one round trip.
        let begin = format!("{BEGIN}; {}", first.joined_with(FACTS));
        let Ok(began) = timeout(first.answer_within(), tx.simple_query(&begin)).await else {
            return Ok((tx, Err(wait.no_answer())));
        };
        match began {
            Ok(answer) => {
                if let Some(row) = first_row(&answer).filter(|row| row.get(1) == row.get(2)) {
                    tx.has_begun(row);
                    let granted = match wait.answered(row.get(0).unwrap_or_default()) {
                        Ok(()) => go_on(&tx, &mut wait).await,
                        Err(refused) => Err(refused),
                    };
                    return Ok((tx, granted));
                }
            }
            Err(error) if is_in_transaction(&error) => {}
            // BEGIN has none of these.
            Err(error) if matches!(condition(&error), Some(Condition::LockTableFull | Condition::Deadlock)) => {
                let code = error.code().cloned();
                let refused = wait.failed(code.as_ref().map(|code| code.code()), error);
                return Ok((tx, Err(refused)));
            }
            Err(error) => return Err(TxError::unavailable(error)),
        }
        // Somebody has left a transaction open on it, which is not ours to commit. It may have our lock by now, and would
        // keep it for a moment from the next connection if this one was only closed.
        DeadpoolTx::rollback(tx).await?;
    }
}

/// Whether BEGIN was refused since there is a transaction already, in order or aborted.
fn is_in_transaction(error: &Error) -> bool {
    matches!(
        condition(error),
        Some(Condition::InTransaction | Condition::TransactionAborted)
    )
}

async fn wait(tx: &PooledTx, request: &TxRequest, until: Instant) -> Result<bool, XactLockError> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let lock = match request.mode() {
            Mode::Shared => tx.xact_lock_shared(request.key()),
            Mode::Exclusive => tx.xact_lock(request.key()),
        };
        match lock.within(left.min(SLICE)).await {
            Ok(()) => return Ok(true),
            Err(error) if !error.is_timeout() => return Err(error),
            Err(_) if left <= SLICE || request.is_abandoned() => return Ok(false),
            Err(_) => {}
        }
    }
}

fn from_statement(error: Error) -> TxError {
    match condition(&error) {
        Some(Condition::TransactionAborted) => TxError::aborted(error),
        Some(_) if is_fatal(&error) => TxError::unavailable(error),
        Some(Condition::TableMissing | Condition::Forbidden) => TxError::setup(error),
        Some(_) => TxError::other(error),
        None if error.is_closed() => TxError::unavailable(error),
        None => TxError::other(error),
    }
}

/// Ends what a refused COMMIT may have left. It is not in a transaction if COMMIT itself was refused, and the server warns
/// of a ROLLBACK then; if it is in one, that is aborted, and takes nothing else.
async fn clear_away(tx: &PooledTx) -> Result<(), Error> {
    let (_, rolled_back) = join(tx.batch_execute("BEGIN"), tx.batch_execute("ROLLBACK")).await;
    rolled_back
}

/// Only an error that leaves the connection open is the server's word: one that ends it can come from a pooler, whose
/// server may have committed.
fn judge(ended: Result<Vec<SimpleQueryMessage>, Error>) -> Result<(), TxError> {
    let answer = match ended {
        Ok(answer) if says(&answer, "open") => return Ok(()),
        Ok(_) => None,
        // A server that has never seen the setting.
        Err(error) if is_setting_unknown(&error) => None,
        Err(error) => Some(error),
    };
    match answer {
        None => Err(TxError::outcome_unknown(
            "the handler has ended the transaction itself; leave COMMIT and ROLLBACK to the layer",
        )),
        Some(error) if error.as_db_error().is_some() && !is_fatal(&error) => Err(TxError::aborted(error)),
        Some(error) => Err(TxError::outcome_unknown(error)),
    }
}

/// Whether it is our setting that is unknown, whose name is in the text in any language.
fn is_setting_unknown(error: &Error) -> bool {
    let names_it = |error: &DbError| error.message().contains("latchwork.transaction");
    error.code() == Some(&SqlState::UNDEFINED_OBJECT) && error.as_db_error().is_some_and(names_it)
}

fn says(messages: &[SimpleQueryMessage], text: &str) -> bool {
    first_row(messages).is_some_and(|row| row.get(0) == Some(text))
}

fn first_row(messages: &[SimpleQueryMessage]) -> Option<&SimpleQueryRow> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}

/// Whether the server has ended the connection with these words.
fn is_fatal(error: &Error) -> bool {
    let severity = error.as_db_error().and_then(|error| error.parsed_severity());
    matches!(severity, Some(Severity::Fatal | Severity::Panic))
}

fn parameter<'a>(value: &'a SqlValue<'a>) -> (Box<dyn ToSql + Sync + Send + 'a>, Type) {
    match value {
        SqlValue::Text(text) => (Box::new(*text), Type::TEXT),
        SqlValue::Bytes(bytes) => (Box::new(*bytes), Type::BYTEA),
        SqlValue::Int(int) => (Box::new(*int), Type::INT8),
        _ => unreachable!("the two crates are released together"),
    }
}

/// The bytes of a column, where they are the same in both formats of the wire.
struct Raw(Bytes);

impl<'a> FromSql<'a> for Raw {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(Bytes::copy_from_slice(raw)))
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::TEXT | Type::BYTEA)
    }
}

/// The setting goes with the transaction, whoever ends it.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL latchwork.transaction = 'open'";
/// Two times that are the same if this message has begun the transaction, for on a connection with an open one BEGIN only
/// warns; and what tells the transaction from all others in the server. Each operator and each function, above all one of
/// many forms such as `date_part`, costs the server about a microsecond to look up.
const FACTS: &str = "CURRENT_TIMESTAMP, pg_catalog.statement_timestamp(), pg_catalog.pg_backend_pid()";
/// COMMIT of an aborted transaction "succeeds", so something before it has to fail; and it says whether the transaction
/// is ours.
const COMMIT: &str = "SHOW latchwork.transaction; COMMIT";

/// After how long a wait looks whether anybody still wants it.
const SLICE: Duration = Duration::from_secs(1);
