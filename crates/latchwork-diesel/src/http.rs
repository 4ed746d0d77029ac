//! Transactions for HTTP requests.

mod open;
mod query;
mod shared;

use std::{fmt, sync::Arc, time::Instant};

use diesel::{
    PgConnection,
    r2d2::{ConnectionManager, Pool},
};
use latchwork_http::{
    TxProvider,
    tx::{SqlValue, TxError, TxRequest, TxRow},
};
use tokio::{
    sync::{Semaphore, oneshot},
    task::spawn_blocking,
    time::timeout,
};

use self::shared::Shared;

type PgPool = Pool<ConnectionManager<PgConnection>>;

/// Opens a transaction for each request on a connection of an r2d2 pool: for
/// [`TxLockPolicy`](latchwork_http::TxLockPolicy) and the layers that wear it.
///
/// diesel blocks its thread, so a handler says what to do on the connection in closures, which
/// [`PooledTx::run`] has run on Tokio's threads for that. A transaction has such a thread only while something runs on it.
///
/// A request has its connection from before its handler runs until its transaction has ended, so the pool's size is how
/// many run or wait at once. Those for whom there is none wait without a thread.
///
/// A rollback undoes what belongs to the transaction. What a handler does to the session, such as `SET`, `LISTEN` or a
/// lock of session scope, stays on the pooled connection.
///
/// # Limits
///
/// Nothing stops libpq midway. A statement that a handler has left running is ended from another connection of the pool,
/// after the request's limit; so a pool needs one connection more than may be left like that at once, or the statements
/// run to their ends, with their locks. A server that does not
/// answer at all keeps the thread and the connection for as long as libpq waits for it, though not the request: set
/// `keepalives_idle` and `tcp_user_timeout` in the connections' URL. After an outage r2d2 pauses for up to half of the
/// pool's `connection_timeout`, which is 30 s by default, before it tries again to connect.
///
/// # Examples
///
/// ```no_run
/// use diesel::{PgConnection, RunQueryDsl as _, r2d2::{ConnectionManager, Pool}, sql_query};
/// use latchwork_diesel::{DieselTx, Key};
/// use latchwork_http::tx::{TxProvider, TxRequest};
///
/// # async fn example(pool: Pool<ConnectionManager<PgConnection>>) -> Result<(), Box<dyn std::error::Error>> {
/// let provider = DieselTx::from(pool);
/// if let Some(mut tx) = provider.begin(TxRequest::new(Key::bigint(42))).await? {
///     tx.run(|conn| sql_query("UPDATE orders SET paid = true WHERE id = 42").execute(conn)).await?;
///     DieselTx::commit(tx).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DieselTx {
    pool: PgPool,
    /// Who waits for a connection waits here, for on a thread they would keep those with a connection from running.
    turns: Arc<Semaphore>,
}

impl From<PgPool> for DieselTx {
    fn from(pool: PgPool) -> Self {
        let turns = Arc::new(Semaphore::new(pool.max_size() as usize));
        Self { pool, turns }
    }
}

impl fmt::Debug for DieselTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DieselTx")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

/// An open transaction on a connection of a pool. Dropped, it is rolled back, and its connection goes back to the pool
/// then; if that takes longer than the request's limit, its session is ended.
///
/// More locks of transaction scope can be taken on its connection with [`XactLockExt`](crate::XactLockExt).
#[must_use = "dropping it rolls back"]
pub struct PooledTx(Shared);

impl PooledTx {
    /// Runs a closure on the connection, on a thread that may block. The connection is inside of the transaction:
    /// `transaction` on it makes a savepoint. Statements may not end it: a COMMIT or ROLLBACK of the closure's is found
    /// out at the end and reported as an outcome that is not known.
    ///
    /// # Cancel safety
    ///
    /// A closure that has begun goes on if the future is dropped, and one that has not may still. Whatever comes next
    /// waits for it: another closure, COMMIT, or ROLLBACK, which ends the server's session after the request's limit.
    ///
    /// # Panics
    ///
    /// If the closure does. The transaction is still there.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use diesel::{RunQueryDsl as _, result::Error, sql_query, sql_types::BigInt};
    /// use latchwork_diesel::PooledTx;
    ///
    /// # async fn example(mut tx: PooledTx, order: i64) -> Result<(), Error> {
    /// tx.run(move |conn| {
    ///     let pay = sql_query("UPDATE orders SET paid = true WHERE id = $1");
    ///     pay.bind::<BigInt, _>(order).execute(conn)
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T, F>(&mut self, body: F) -> T
    where
        T: Send + 'static,
        F: FnOnce(&mut PgConnection) -> T + Send + 'static,
    {
        self.0.run(body).await
    }
}

impl fmt::Debug for PooledTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledTx").finish_non_exhaustive()
    }
}

impl TxProvider for DieselTx {
    type Tx = PooledTx;

    /// A request that is abandoned while the server waits for the lock keeps its connection to the end of the slice, a
    /// little more than a second.
    async fn begin(&self, request: TxRequest) -> Result<Option<PooledTx>, TxError> {
        let begun = Instant::now();
        let limit = request.answer_within();
        let turn = timeout(limit, Arc::clone(&self.turns).acquire_owned()).await;
        let turn = turn.map_err(TxError::unavailable)?.map_err(TxError::unavailable)?;
        let limit = limit
            .saturating_add(request.wait().unwrap_or_default())
            .saturating_sub(begun.elapsed());
        let answer_within = request.answer_within();
        let pool = self.pool.clone();
        let (answers, answer) = oneshot::channel();
        spawn_blocking(move || {
            let opened = open::open(&pool, &request, begun, turn);
            if let Err(Ok(Some(unwanted))) = answers.send(opened) {
                unwanted.roll_back();
            }
        });
        let opened = timeout(limit, answer).await.map_err(TxError::unavailable)?;
        let open = opened.map_err(TxError::unavailable)??;
        Ok(open.map(|open| PooledTx(Shared::new(open, self.pool.clone(), answer_within))))
    }

    async fn query<'a>(
        tx: &'a mut PooledTx,
        sql: &'a str,
        values: &'a [SqlValue<'a>],
    ) -> Result<Option<TxRow>, TxError> {
        let statement = query::Statement::new(sql, values);
        // Whoever waits for it gives up then; the rollback that follows ends the session.
        let limit = tx.0.answer_within();
        let answered = timeout(limit, tx.0.run(move |conn| query::first_row(conn, statement))).await;
        answered.map_err(TxError::unavailable)?
    }

    async fn commit(tx: PooledTx) -> Result<(), TxError> {
        tx.0.commit().await
    }

    /// A statement of a handler that was dropped runs on in the server, and ROLLBACK waits for its end. After the
    /// request's limit the server's session is ended, from another connection of the pool.
    async fn rollback(tx: PooledTx) -> Result<(), TxError> {
        tx.0.roll_back().await.map_err(TxError::unavailable)
    }
}
