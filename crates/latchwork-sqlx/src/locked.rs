use std::{error::Error as StdError, future::Future, num::NonZeroU32, time::Duration};

use latchwork_core::{
    fence::Fence,
    xact::{FencedLimits, KeySet, LockedError, TransactionBody, XactOptions, XactRequest, XactWait, pause_after},
};
use sqlx::{Connection, PgConnection, PgPool, Postgres, Transaction};
use tokio::time::{sleep, timeout};

use crate::{
    end::{Cause, Ends},
    error::is_conflict,
    lent::Lent,
    pooled::{OpenError, Pooled},
    wait,
};

/// Transactions that begin with a lock. Implemented for `&PgPool` and `&mut PgConnection`, and so at hand on a pool, a
/// `PoolConnection` and a `PgConnection`; nobody else can.
///
/// Each begins in READ COMMITTED, so that the work sees what the last holder has committed, and takes its locks before
/// the body runs. It commits if the body returns Ok, and rolls back if it returns Err or panics; the panic goes on.
/// What is reported as committed is committed: the server is asked, in the same round trip as COMMIT, whether the
/// transaction is alive.
///
/// On a pool, a connection is waited for as the pool's `acquire_timeout` says, which BEGIN counts in; the limit of the
/// options is for the locks alone. The lock and the work are on one connection, so a pool of one is enough.
///
/// The body is an async closure `async |transaction| { .. }` over `&mut Transaction<'_, Postgres>`, or a function like
/// it, whose future is `Send`. It does not end the transaction itself, with COMMIT or ROLLBACK as statements; that is
/// found out, and reported as [`LockedError::OutcomeUnknown`]. For a savepoint it calls `begin` on the transaction.
///
/// Any error of the body will do. One that is no [`Error`](std::error::Error) itself, such as `anyhow::Error`, joins those of
/// the transaction by [`LockedError::into_body`].
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use latchwork_sqlx::{Key, LockedTransactionExt as _, XactOptions};
///
/// # async fn example(pool: sqlx::PgPool, id: i64) -> Result<(), Box<dyn std::error::Error>> {
/// let options = XactOptions::within(Duration::from_secs(2));
/// let left = pool
///     .locked_transaction(Key::bigint(id), options, async |tx| {
///         let stock: i32 = sqlx::query_scalar("SELECT stock FROM items WHERE id = $1")
///             .bind(id)
///             .fetch_one(&mut **tx)
///             .await?;
///         sqlx::query("UPDATE items SET stock = $2 WHERE id = $1")
///             .bind(id)
///             .bind(stock - 1)
///             .execute(&mut **tx)
///             .await?;
///         Ok::<_, sqlx::Error>(stock - 1)
///     })
///     .await?;
/// println!("{left} left");
/// # Ok(())
/// # }
/// ```
pub trait LockedTransactionExt: sealed::Begins {
    /// Runs the body in a transaction that has its locks, and waits for them as the options say.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; unless COMMIT was sent already, nothing is stored then. The transaction is rolled
    /// back as soon as the server is done with the statement that it is at: a wait ends with its slice of about 1
    /// second. A pool has the connection back then. A statement of the body that runs on for 2 seconds is ended
    /// together with its session; on a connection that was lent it runs to its end.
    ///
    /// # Errors
    ///
    /// [`LockedError::Begin`] if there is no connection, or a transaction is open on it already;
    /// [`LockedError::Lock`] if the locks were not granted; [`LockedError::Body`] with the body's own error;
    /// [`LockedError::Aborted`] if the server has rolled back, though the body did not say so;
    /// [`LockedError::OutcomeUnknown`] if the connection ended before COMMIT was answered.
    fn locked_transaction<T, E, F>(
        mut self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        F: for<'r, 'c> TransactionBody<&'r mut Transaction<'c, Postgres>, T, E>,
        T: Send,
        E: Send,
    {
        let wait = options.waits_for(keys.into());
        async move { self.locked(&wait, body).await }
    }

    /// Runs the body in a transaction that has exclusive locks on all of the keys, if all are free; `None` if others
    /// have one.
    ///
    /// # Cancel safety
    ///
    /// As [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Errors
    ///
    /// As [`locked_transaction`](Self::locked_transaction), but that others have a lock is none.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use latchwork_sqlx::{Key, LockedTransactionExt as _};
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let swept = pool
    ///     .try_locked_transaction(Key::bigint(42), async |tx| {
    ///         sqlx::query("DELETE FROM sessions WHERE expires_at < now()").execute(&mut **tx).await
    ///     })
    ///     .await?;
    /// if swept.is_none() {
    ///     println!("somebody else is at it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn try_locked_transaction<T, E, F>(
        mut self,
        keys: impl Into<KeySet>,
        body: F,
    ) -> impl Future<Output = Result<Option<T>, LockedError<E>>> + Send
    where
        F: for<'r, 'c> TransactionBody<&'r mut Transaction<'c, Postgres>, T, E>,
        T: Send,
        E: Send,
    {
        let request = XactRequest::new(keys);
        async move { self.transact(|| XactWait::attempt(request.clone()), body).await }
    }

    /// Does as [`locked_transaction`](Self::locked_transaction), and all of it again after a serialization failure or a
    /// deadlock in the locks, the body or COMMIT, at most `attempts` times altogether, with a random pause of 5 to
    /// 160 ms in between. The limit of the options is for each attempt.
    ///
    /// The body's error says so in its `source()` chain, which must have the error of sqlx, or of a lock that the body
    /// took. What a body has done outside of its transaction, it does again.
    ///
    /// # Cancel safety
    ///
    /// As [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Errors
    ///
    /// The last attempt's, as of [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::{num::NonZeroU32, time::Duration};
    /// # use latchwork_sqlx::{Key, LockedTransactionExt as _, XactOptions};
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// const FIVE: NonZeroU32 = NonZeroU32::new(5).unwrap();
    /// let options = XactOptions::within(Duration::from_secs(2));
    /// pool.retrying_locked_transaction(Key::bigint(42), options, FIVE, async |tx| {
    ///     sqlx::query("UPDATE totals SET n = n + 1").execute(&mut **tx).await
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    fn retrying_locked_transaction<T, E, F>(
        mut self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        attempts: NonZeroU32,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        F: Clone + for<'r, 'c> TransactionBody<&'r mut Transaction<'c, Postgres>, T, E>,
        T: Send,
        E: StdError + Send + 'static,
    {
        let wait = options.waits_for(keys.into());
        async move {
            for failed in 1..attempts.get() {
                match self.locked(&wait, body.clone()).await {
                    Err(error) if error.is_worth_another_run(is_conflict) => sleep(pause_after(failed)).await,
                    done => return done,
                }
            }
            self.locked(&wait, body).await
        }
    }

    /// Runs the body in a transaction that has [proved](latchwork_core::fence) a fence: it commits before any later
    /// grant of the lock is handed out, or not at all.
    ///
    /// The limits say after what time the server ends it, so that one that is paused does not keep the next holder
    /// waiting. The proof is waited for for at most `limit`; it is the first thing after BEGIN.
    ///
    /// # Cancel safety
    ///
    /// As [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Errors
    ///
    /// [`LockedError::Lock`] with [`Superseded`](latchwork_core::xact::XactLockError::Superseded) if the grant is not
    /// in force any more: the body did not run. Otherwise as [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use latchwork_sqlx::{Fence, FencedLimits, LockedTransactionExt as _};
    /// # async fn example(pool: sqlx::PgPool, fence: Fence) -> Result<(), Box<dyn std::error::Error>> {
    /// let (limits, limit) = (FencedLimits::default(), Duration::from_secs(2));
    /// pool.fenced_transaction(&fence, limits, limit, async |tx| {
    ///     sqlx::query("UPDATE totals SET n = n + 1").execute(&mut **tx).await
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    fn fenced_transaction<T, E, F>(
        mut self,
        fence: &Fence,
        limits: FencedLimits,
        limit: Duration,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        F: for<'r, 'c> TransactionBody<&'r mut Transaction<'c, Postgres>, T, E>,
        T: Send,
        E: Send,
    {
        let wait = XactRequest::fenced(fence, limits).waits(Some(limit));
        async move { self.locked(&wait, body).await }
    }
}

impl LockedTransactionExt for &PgPool {}
impl LockedTransactionExt for &mut PgConnection {}

mod sealed {
    use super::{Future, LockedError, Postgres, Transaction, TransactionBody, XactWait};

    #[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
    pub trait Begins: Send + Sized {
        /// Begins, waits for the locks, runs the body and ends; `None` if a wait that was one attempt has lost.
        fn transact<T, E, F>(
            &mut self,
            wait: impl Fn() -> XactWait + Send + Sync,
            body: F,
        ) -> impl Future<Output = Result<Option<T>, LockedError<E>>> + Send
        where
            F: for<'r, 'c> TransactionBody<&'r mut Transaction<'c, Postgres>, T, E>,
            T: Send,
            E: Send;

        /// As [`transact`](Self::transact), with a wait that loses with an error.
        fn locked<T, E, F>(
            &mut self,
            wait: impl Fn() -> XactWait + Send + Sync,
            body: F,
        ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
        where
            F: for<'r, 'c> TransactionBody<&'r mut Transaction<'c, Postgres>, T, E>,
            T: Send,
            E: Send,
        {
            async move {
                let done = self.transact(wait, body).await?;
                Ok(done.expect("a wait that is not granted ends with an error"))
            }
        }
    }
}

impl sealed::Begins for &PgPool {
    async fn transact<T, E, F>(
        &mut self,
        wait: impl Fn() -> XactWait + Send + Sync,
        body: F,
    ) -> Result<Option<T>, LockedError<E>>
    where
        F: for<'r, 'c> TransactionBody<&'r mut Transaction<'c, Postgres>, T, E>,
        T: Send,
        E: Send,
    {
        let open = Pooled::open(self, CLEARED_WITHIN, wait);
        let open = timeout(self.options().get_acquire_timeout(), open).await;
        let (pooled, wait) = match open.map_err(|elapsed| LockedError::Begin(elapsed.into()))? {
            Ok(open) => open,
            Err(OpenError::Begin(cause)) => return Err(LockedError::Begin(cause)),
            Err(OpenError::Lock(error)) => return Err(LockedError::Lock(error)),
        };
        run(pooled, wait, body).await
    }
}

impl sealed::Begins for &mut PgConnection {
    async fn transact<T, E, F>(
        &mut self,
        wait: impl Fn() -> XactWait + Send + Sync,
        body: F,
    ) -> Result<Option<T>, LockedError<E>>
    where
        F: for<'r, 'c> TransactionBody<&'r mut Transaction<'c, Postgres>, T, E>,
        T: Send,
        E: Send,
    {
        if self.is_in_transaction() {
            return Err(LockedError::Begin(IN_TRANSACTION.into()));
        }
        let mut lent = Lent::new(self);
        let mut transaction = lent.begin().await.map_err(|error| LockedError::Begin(error.into()))?;
        let mut wait = wait();
        match wait::first(&mut transaction, &mut wait).await {
            Ok(_) => run(transaction, wait, body).await,
            Err(error) => {
                settle(transaction).await;
                Err(LockedError::Lock(error))
            }
        }
    }
}

/// Runs what is left of a wait, then the body, and ends the transaction.
async fn run<S, T, E, F>(mut transaction: S, mut wait: XactWait, body: F) -> Result<Option<T>, LockedError<E>>
where
    S: Ends,
    F: for<'r> TransactionBody<&'r mut S::Transaction, T, E>,
{
    match wait::go_on(transaction.transaction(), &mut wait).await {
        Ok(true) => {}
        Ok(false) => {
            settle(transaction).await;
            return Ok(None);
        }
        Err(error) => {
            settle(transaction).await;
            return Err(error.into());
        }
    }
    match body(transaction.transaction()).await {
        Ok(value) => {
            transaction.commit().await?;
            Ok(Some(value))
        }
        Err(error) => {
            settle(transaction).await;
            Err(LockedError::Body(error))
        }
    }
}

/// Rolls back on the way to another error. What goes wrong here is undone with the connection.
async fn settle(transaction: impl Ends) {
    let rolled_back: Result<(), Cause> = transaction.roll_back().await;
    if let Err(error) = rolled_back {
        let error: &dyn StdError = &*error;
        tracing::debug!(target: "latchwork::sqlx", error, "a transaction was not rolled back in order");
    }
}

/// After what time a session that does not roll back is ended: longer than any slice of a wait.
const CLEARED_WITHIN: Duration = Duration::from_secs(2);
const IN_TRANSACTION: &str = "a transaction is open on this connection; take the lock in it with xact_lock";
