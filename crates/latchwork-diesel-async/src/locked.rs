mod begins;

use std::{error::Error as StdError, future::Future, num::NonZeroU32, time::Duration};

use diesel_async::AsyncPgConnection;
#[cfg(feature = "bb8")]
use diesel_async::pooled_connection::bb8;
#[cfg(feature = "deadpool")]
use diesel_async::pooled_connection::deadpool;
use latchwork_core::{
    fence::Fence,
    xact::{FencedLimits, KeySet, LockedError, XactOptions, XactRequest, XactWait, pause_after},
};
use tokio::time::sleep;

use crate::error::is_conflict;

pub use latchwork_core::xact::TransactionBody;

/// Transactions that begin with a lock. Implemented for `&mut AsyncPgConnection`, and for `&Pool` of deadpool and bb8 with
/// the features of these names; and so at hand on a pool, a connection of one, and an `AsyncPgConnection`. Nobody else can.
///
/// Each begins in READ COMMITTED, so that the work sees what the last holder has committed, and takes its locks before
/// the body runs; BEGIN and a lock that is free are one round trip. It commits if the body returns Ok, and rolls back if it
/// returns Err or panics; the panic goes on. What is reported as committed is committed: the server is asked, in the same
/// round trip as COMMIT, whether the transaction is alive.
///
/// On a pool, a connection is waited for as the pool's own time limits say; the limit of the options is for the locks
/// alone. The lock and the work are on one connection, so a pool of one is enough.
///
/// The body does not end the transaction itself, with COMMIT or ROLLBACK as statements; that is found out, and reported
/// as [`LockedError::OutcomeUnknown`]. For a savepoint it calls `transaction` on the connection. If it drops the future of
/// one midway, all of its work is rolled back: [`LockedError::Aborted`].
///
/// Any error of the body will do. One that is no [`Error`](std::error::Error) itself, such as `anyhow::Error`, joins those of
/// the transaction by [`LockedError::into_body`].
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use diesel::{ExpressionMethods as _, QueryDsl as _, result::Error};
/// use diesel_async::{AsyncPgConnection, RunQueryDsl as _};
/// use latchwork_diesel_async::{Key, LockedTransactionExt as _, XactOptions};
///
/// diesel::table! {
///     items (id) { id -> BigInt, stock -> Integer }
/// }
///
/// # async fn example(mut connection: AsyncPgConnection, id: i64) -> Result<(), Box<dyn std::error::Error>> {
/// let options = XactOptions::within(Duration::from_secs(2));
/// let left = connection
///     .locked_transaction(Key::bigint(id), options, async |tx| {
///         let item = items::table.find(id);
///         let stock: i32 = item.select(items::stock).get_result(&mut *tx).await?;
///         diesel::update(item).set(items::stock.eq(stock - 1)).execute(tx).await?;
///         Ok::<_, Error>(stock - 1)
///     })
///     .await?;
/// println!("{left} left");
/// # Ok(())
/// # }
/// ```
pub trait LockedTransactionExt: begins::Begins {
    /// Runs the body in a transaction that has its locks, and waits for them as the options say.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; unless COMMIT was sent already, nothing is stored then. The transaction is rolled
    /// back as soon as the server is done with the statement that it is at: a wait ends with its slice of about 1
    /// second. A pool has the connection back then. A statement of the body that runs on for 2 seconds is ended together
    /// with its session; on a connection that was lent it runs to its end.
    ///
    /// # Errors
    ///
    /// [`LockedError::Begin`] if there is no connection, or a transaction is open on it already;
    /// [`LockedError::Lock`] if the locks were not granted; [`LockedError::Body`] with the body's own error;
    /// [`LockedError::Aborted`] if the server has rolled back, though the body did not say so;
    /// [`LockedError::OutcomeUnknown`] if the connection ended before COMMIT was answered.
    ///
    /// # Panics
    ///
    /// As the body does. On a pool, outside of a Tokio runtime.
    fn locked_transaction<T, E, F>(
        mut self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        F: for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
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
    /// # use diesel_async::{AsyncPgConnection, RunQueryDsl as _};
    /// # use latchwork_diesel_async::{Key, LockedTransactionExt as _};
    /// # async fn example(mut connection: AsyncPgConnection) -> Result<(), Box<dyn std::error::Error>> {
    /// let swept = connection
    ///     .try_locked_transaction(Key::bigint(42), async |tx| {
    ///         diesel::sql_query("DELETE FROM sessions WHERE expires_at < now()").execute(tx).await
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
        F: for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
        T: Send,
        E: Send,
    {
        let request = XactRequest::new(keys);
        async move { self.transact(|| XactWait::attempt(request.clone()), body).await }
    }

    /// Does as [`locked_transaction`](Self::locked_transaction), and all of it again after a serialization failure or a
    /// deadlock in the locks, the body or COMMIT, at most `attempts` times altogether, with a short random pause in
    /// between. The limit of the options is for each attempt.
    ///
    /// The body's error says so in its `source()` chain, which must have the error of diesel, or of a lock that the body
    /// took. diesel-async keeps the SQLSTATE of a deadlock to itself, so that it is known by the server's message; with
    /// `lc_messages` in a language that the catalogues of PostgreSQL 15 do not have it in, it is not run again. What a body
    /// has done outside of its transaction, it does again.
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
    /// # use diesel_async::{AsyncPgConnection, RunQueryDsl as _};
    /// # use latchwork_diesel_async::{Key, LockedTransactionExt as _, XactOptions};
    /// # async fn example(mut connection: AsyncPgConnection) -> Result<(), Box<dyn std::error::Error>> {
    /// const FIVE: NonZeroU32 = NonZeroU32::new(5).unwrap();
    /// let options = XactOptions::within(Duration::from_secs(2));
    /// connection
    ///     .retrying_locked_transaction(Key::bigint(42), options, FIVE, async |tx| {
    ///         diesel::sql_query("UPDATE totals SET n = n + 1").execute(tx).await
    ///     })
    ///     .await?;
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
        F: Clone + for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
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

    /// Runs the body in a transaction that has proved a [`Fence`]: it can commit only while that very grant of the lock is
    /// in force, and until it has ended no later grant is handed out. Otherwise as
    /// [`locked_transaction`](Self::locked_transaction).
    ///
    /// The limits say after what time the server ends it, so that one that is paused does not keep the next holder
    /// waiting; `limit` is how long it may wait for a grant that is just being made.
    ///
    /// # Cancel safety
    ///
    /// As [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Errors
    ///
    /// [`XactLockError::Superseded`](crate::XactLockError::Superseded) in a [`LockedError::Lock`] if the grant is not in
    /// force any more; otherwise as [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use diesel_async::{AsyncPgConnection, RunQueryDsl as _};
    /// # use latchwork_diesel_async::{Fence, FencedLimits, LockedTransactionExt as _};
    /// # async fn example(mut connection: AsyncPgConnection, fence: Fence) -> Result<(), Box<dyn std::error::Error>> {
    /// connection
    ///     .fenced_transaction(&fence, FencedLimits::default(), Duration::from_secs(2), async |tx| {
    ///         diesel::sql_query("UPDATE totals SET n = n + 1").execute(tx).await
    ///     })
    ///     .await?;
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
        F: for<'r> TransactionBody<&'r mut AsyncPgConnection, T, E>,
        T: Send,
        E: Send,
    {
        let wait = XactRequest::fenced(fence, limits).waits(Some(limit));
        async move { self.locked(&wait, body).await }
    }
}

#[cfg(feature = "deadpool")]
impl LockedTransactionExt for &deadpool::Pool<AsyncPgConnection> {}
#[cfg(feature = "bb8")]
impl LockedTransactionExt for &bb8::Pool<AsyncPgConnection> {}
impl LockedTransactionExt for &mut AsyncPgConnection {}
