//! Transactions for HTTP requests.

mod query;

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use diesel_async::AsyncPgConnection;
#[cfg(feature = "bb8")]
use diesel_async::pooled_connection::bb8;
#[cfg(feature = "deadpool")]
use diesel_async::pooled_connection::deadpool;
use latchwork_core::xact::{XactRequest, XactWait};
use latchwork_http::{
    TxProvider,
    tx::{SqlValue, TxError, TxRequest, TxRow},
};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    end::{CommitError, Ends},
    pool::Pool,
    pooled::{OpenError, OpenTransaction},
    wait,
};

/// Opens a transaction for each request on a connection of a pool: for
/// [`TxLockPolicy`](latchwork_http::TxLockPolicy) and the layers that wear it. Made from a pool of deadpool or of bb8.
///
/// A request has its connection from before its handler runs until its transaction has ended, so the pool's size is how
/// many run or wait at once. Its handler works on that connection; a pool of one serves one request after the other.
///
/// A rollback undoes what belongs to the transaction. What a handler does to the session, such as `SET`, `LISTEN` or a
/// lock of session scope, stays on the pooled connection; a `RecyclingMethod` of the pool can clear it away. (It must not
/// be `DISCARD ALL`, which takes the statements away that diesel-async keeps prepared.)
///
/// After an outage bb8 pauses for up to half of the pool's `connection_timeout`, which is 30 s by default, before it tries
/// again to connect.
///
/// # Examples
///
/// ```no_run
/// # #[cfg(feature = "deadpool")]
/// # mod example {
/// use diesel_async::{AsyncPgConnection, RunQueryDsl as _, pooled_connection::deadpool::Pool};
/// use latchwork_diesel_async::{DieselAsyncTx, Key};
/// use latchwork_http::tx::{TxProvider, TxRequest};
///
/// # async fn example(pool: Pool<AsyncPgConnection>) -> Result<(), Box<dyn std::error::Error>> {
/// let provider = DieselAsyncTx::from(pool);
/// if let Some(mut tx) = provider.begin(TxRequest::new(Key::bigint(42))).await? {
///     diesel::sql_query("UPDATE orders SET paid = true WHERE id = 42").execute(&mut tx).await?;
///     DieselAsyncTx::commit(tx).await?;
/// }
/// # Ok(())
/// # }
/// # }
/// ```
///
/// A connection belongs to the runtime that it was made on, and ends with it. Each worker of actix-web has a runtime of its
/// own; so have the pool's connections made on the program's:
///
/// ```no_run
/// # #[cfg(feature = "deadpool")]
/// # mod example {
/// use diesel::ConnectionError;
/// use diesel_async::{
///     AsyncConnection as _, AsyncPgConnection,
///     pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, deadpool::Pool},
/// };
/// use tokio::runtime::Handle;
///
/// # fn example(url: &str) -> Result<Pool<AsyncPgConnection>, Box<dyn std::error::Error>> {
/// // On the program's runtime, before the server's workers are there.
/// let runtime = Handle::current();
/// let mut config = ManagerConfig::default();
/// config.custom_setup = Box::new(move |url| {
///     let (runtime, url) = (runtime.clone(), url.to_owned());
///     Box::pin(async move {
///         let made = runtime.spawn(async move { AsyncPgConnection::establish(&url).await });
///         made.await.unwrap_or_else(|error| Err(ConnectionError::BadConnection(error.to_string())))
///     })
/// });
/// let manager = AsyncDieselConnectionManager::new_with_config(url, config);
/// let pool = Pool::builder(manager).max_size(16).build()?;
/// # Ok(pool)
/// # }
/// # }
/// ```
#[derive(Clone)]
pub struct DieselAsyncTx {
    pool: Pool,
}

#[cfg(feature = "deadpool")]
impl From<deadpool::Pool<AsyncPgConnection>> for DieselAsyncTx {
    fn from(pool: deadpool::Pool<AsyncPgConnection>) -> Self {
        let pool = Pool::Deadpool(pool);
        Self { pool }
    }
}

#[cfg(feature = "bb8")]
impl From<bb8::Pool<AsyncPgConnection>> for DieselAsyncTx {
    fn from(pool: bb8::Pool<AsyncPgConnection>) -> Self {
        let pool = Pool::Bb8(pool);
        Self { pool }
    }
}

impl fmt::Debug for DieselAsyncTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("DieselAsyncTx");
        match &self.pool {
            #[cfg(feature = "deadpool")]
            Pool::Deadpool(pool) => shown.field("pool", &pool.status()),
            #[cfg(feature = "bb8")]
            Pool::Bb8(pool) => shown.field("pool", &pool.state()),
        };
        shown.finish()
    }
}

/// An open transaction on a connection of a pool. Dropped, it is rolled back, and its connection goes back to the pool
/// then; if that takes longer than the request's limit, the connection is closed and its session ended.
///
/// It is an `AsyncPgConnection` inside of a transaction: `transaction` on it makes a savepoint. Statements may not end it:
/// a COMMIT or ROLLBACK of the handler's is found out at the end and reported as an outcome that is not known.
///
/// More locks of transaction scope can be taken on it with [`XactLockExt`](crate::XactLockExt).
#[must_use = "dropping it rolls back"]
pub struct PooledTx(OpenTransaction);

impl Deref for PooledTx {
    type Target = AsyncPgConnection;

    fn deref(&self) -> &AsyncPgConnection {
        self.0.as_connection()
    }
}

impl DerefMut for PooledTx {
    fn deref_mut(&mut self) -> &mut AsyncPgConnection {
        self.0.connection()
    }
}

impl fmt::Debug for PooledTx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledTx").finish_non_exhaustive()
    }
}

impl TxProvider for DieselAsyncTx {
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
        let opens = OpenTransaction::open(&self.pool, request.answer_within(), wait);
        let opened = timeout_at(begun + request.answer_within(), opens).await;
        let (tx, wait) = opened.map_err(TxError::unavailable)?.map_err(from_open)?;
        if granted(tx.as_connection(), wait, &request).await? {
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
        // Whoever waits for it gives up then; the rollback that follows ends the session.
        let answered = timeout(tx.0.answer_within(), query::first_row(tx, sql, values)).await;
        answered.map_err(TxError::unavailable)?
    }

    async fn commit(tx: PooledTx) -> Result<(), TxError> {
        // The server carries it out then, or its session is ended if that takes as long again.
        let committed = timeout(tx.0.answer_within(), tx.0.commit()).await;
        match committed.map_err(TxError::outcome_unknown)? {
            Ok(()) => Ok(()),
            Err(CommitError::Aborted(cause)) => Err(TxError::aborted(cause)),
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
async fn granted(tx: &AsyncPgConnection, mut wait: XactWait, request: &TxRequest) -> Result<bool, TxError> {
    while !request.is_abandoned() {
        match wait::step(tx, &mut wait).await {
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
