//! A transaction on a connection of a pool.

use std::{future::Future, pin::Pin, time::Duration};

use latchwork_core::{
    sqlstate::Condition,
    xact::{ServerSide, XactLockError, XactWait},
};
use sqlx::{AssertSqlSafe, Error, Executor, PgConnection, PgPool, Postgres, Transaction, error::DatabaseError};
use tokio::{
    runtime::{Builder, Handle},
    time::timeout,
};
use tracing::warn;

use crate::{
    end::{self, Cause, CommitError, Ends},
    error::condition,
    sql, wait,
};

/// An open transaction that owns its connection. Dropped, it is rolled back in a task, and its connection goes back to
/// the pool when that is done; if it is not done in time, the connection is closed and its session ended.
#[derive(Debug)]
pub(crate) struct Pooled {
    /// `None` only while it ends.
    transaction: Option<Transaction<'static, Postgres>>,
    pool: PgPool,
    /// What is dropped on another thread is rolled back all the same.
    runtime: Handle,
    answer_within: Duration,
    /// `None` until the server has told it.
    server_side: Option<ServerSide>,
}

/// Why no transaction was begun, or none with its first request for the lock.
#[derive(Debug)]
pub(crate) enum OpenError {
    Begin(Cause),
    Lock(XactLockError),
}

impl Pooled {
    /// Begins, and sends the first statement of a wait. How long an end may take is for `answer_within` to say.
    ///
    /// May be dropped at any time: what is not begun yet is closed, and what is begun is rolled back.
    pub(crate) async fn open(
        pool: &PgPool,
        answer_within: Duration,
        wait: impl Fn() -> XactWait,
    ) -> Result<(Self, XactWait), OpenError> {
        let begun = begin(pool).await.map_err(|error| OpenError::Begin(error.into()))?;
        let mut this = Self {
            transaction: Some(begun),
            pool: pool.clone(),
            runtime: Handle::current(),
            answer_within,
            server_side: None,
        };
        let mut wait = wait();
        match wait::first(this.transaction(), &mut wait).await {
            Ok(server_side) => {
                this.server_side = Some(server_side);
                Ok((this, wait))
            }
            Err(error) => {
                // It is rolled back all the same if this fails.
                drop(this.roll_back().await);
                Err(OpenError::Lock(error))
            }
        }
    }

    #[cfg(feature = "http")]
    pub(crate) const fn answer_within(&self) -> Duration {
        self.answer_within
    }

    #[cfg(feature = "http")]
    pub(crate) fn as_transaction(&self) -> &Transaction<'static, Postgres> {
        self.transaction.as_ref().expect(PRESENT)
    }

    fn clearing(&mut self) -> Option<impl Future<Output = Result<(), Cause>> + Send + use<>> {
        let transaction = self.transaction.take()?;
        let (pool, limit, server_side) = (self.pool.clone(), self.answer_within, self.server_side.take());
        Some(clear(transaction, pool, limit, server_side))
    }
}

impl Ends for Pooled {
    type Transaction = Transaction<'static, Postgres>;

    fn transaction(&mut self) -> &mut Transaction<'static, Postgres> {
        self.transaction.as_mut().expect(PRESENT)
    }

    async fn commit(mut self) -> Result<(), CommitError> {
        match end::commit(self.transaction()).await {
            Ok(()) => {
                // The pool sends what is left to roll back, of the empty transaction, with the ping that takes it in.
                drop(self.transaction.take());
                Ok(())
            }
            Err(error @ CommitError::Aborted(_)) => {
                drop(self.roll_back().await);
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    async fn roll_back(mut self) -> Result<(), Cause> {
        match self.clearing() {
            // In a task, so that leaving does not stop it midway.
            Some(clearing) => self.runtime.spawn(clearing).await?,
            None => Ok(()),
        }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(clearing) = self.clearing() {
            // A runtime that has ended drops the task, and then sqlx wants to know where it is.
            let _context = self.runtime.enter();
            drop(self.runtime.spawn(clearing));
        }
    }
}

/// Rolls back behind whatever the connection is still busy with.
///
/// A statement that was abandoned runs on in the server, with the locks of its transaction. So after the limit the
/// connection is closed, and the session that it leaves behind is ended.
async fn clear(
    transaction: Transaction<'static, Postgres>,
    pool: PgPool,
    limit: Duration,
    server_side: Option<ServerSide>,
) -> Result<(), Cause> {
    let mut rolling_back = Closing::new(transaction.rollback());
    match timeout(limit, rolling_back.run()).await {
        Ok(done) => Ok(done?),
        Err(elapsed) => {
            // First, for a pool of one connection.
            drop(rolling_back);
            if let Some(server_side) = server_side {
                terminate(&pool, limit, &server_side).await;
            }
            Err(elapsed.into())
        }
    }
}

/// Has another connection end a session, if it is still in that transaction.
async fn terminate(pool: &PgPool, limit: Duration, server_side: &ServerSide) {
    let terminate = server_side.terminate();
    if !matches!(timeout(limit, pool.execute(AssertSqlSafe(terminate))).await, Ok(Ok(_))) {
        warn!(target: "latchwork::sqlx", pid = server_side.pid(), "a statement that was abandoned may still run, and hold its lock");
    }
}

async fn begin(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    // Each of the pool's connections can have been left in a failed transaction.
    for _ in 0..pool.options().get_max_connections() {
        match begin_once(pool).await {
            Err(error) if is_left_open(&error) => leave_failed(&mut *pool.acquire().await?).await,
            begun => return begun,
        }
    }
    begin_once(pool).await
}

async fn begin_once(pool: &PgPool) -> Result<Transaction<'static, Postgres>, Error> {
    let pool = pool.clone();
    let mut beginning = Closing::new(async move { pool.begin_with(sql::BEGIN).await });
    beginning.run().await
}

/// Whether BEGIN was refused since there is a transaction already, in order or aborted.
fn is_left_open(error: &Error) -> bool {
    let says_so = |error: &dyn DatabaseError| error.message().contains(sql::LEFT_OPEN);
    condition(error) == Some(Condition::TransactionAborted) || error.as_database_error().is_some_and(says_so)
}

/// Ends a failed transaction that sqlx knows nothing of. Asks first: the server warns of a ROLLBACK outside of one.
async fn leave_failed(connection: &mut PgConnection) {
    if connection.execute("SELECT 1").await.is_err() {
        // If this fails, so does the BEGIN that follows.
        drop(connection.execute("ROLLBACK").await);
    }
}

/// Something that goes on with a connection of a pool, and closes it when it is dropped before it is done.
///
/// sqlx gives the connection back instead, which never ends if the server is silent, and which leaves it in a
/// transaction if that was just being begun.
struct Closing<T>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T> Closing<T> {
    fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(future)))
    }

    async fn run(&mut self) -> T {
        let done = self.0.as_mut().expect("run once").await;
        self.0 = None;
        done
    }
}

impl<T> Drop for Closing<T> {
    fn drop(&mut self) {
        let Some(future) = self.0.take() else { return };
        // A connection that is dropped goes back to its pool in a task. A runtime that ends drops that task, and the
        // connection with it; sqlx provides for that, and the pool then has room for another.
        if let Ok(runtime) = Builder::new_current_thread().build() {
            let context = runtime.enter();
            drop(future);
            drop(context);
            runtime.shutdown_background();
        }
    }
}

/// Whoever ends it has it by value.
const PRESENT: &str = "a transaction is there until it ends";
