use std::{error::Error as StdError, future::Future, num::NonZeroU32, time::Duration};

use deadpool_postgres::Pool;
use latchwork_core::{
    fence::Fence,
    sqlstate::Condition,
    xact::{FencedLimits, KeySet, LockedError, TransactionBody, XactOptions, XactRequest, XactWait, pause_after},
};
use latchwork_http::tx::{TxError, TxProvider};
use tokio::{spawn, time::sleep};
use tokio_postgres::{Error, error::DbError};
use tracing::Instrument;

use super::{DeadpoolTx, PooledTx, begin};

/// How long COMMIT and ROLLBACK may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Transactions that hold locks from their beginning to their end, on connections of a pool. Nobody else can implement
/// it.
///
/// The body gets the transaction, with its locks held. It must leave COMMIT and ROLLBACK to the method, which finds out
/// if it does not. For a savepoint it sends `SAVEPOINT`.
///
/// Any error of the body will do. One that is no [`Error`](std::error::Error) itself, such as `anyhow::Error`, joins those of
/// the transaction by [`LockedError::into_body`].
///
/// BEGIN travels with the first statement of the lock, and COMMIT with the question whether the transaction is alive:
/// with a free lock there is no round trip more than without one.
///
/// # Cancel safety
///
/// The futures may be dropped at any time. The transaction's connection is closed then, which rolls it back, and the
/// pool has room for another; a statement that waits for a lock ends with its slice, after about a second. Any other that
/// runs on for 5 seconds is ended together with its session, if the future was dropped on a runtime of tokio. A COMMIT that
/// was sent goes on.
pub trait LockedTransactionExt: sealed::Opens {
    /// Begins a READ COMMITTED transaction, takes the locks, runs the body, and commits if it says `Ok`. If it says
    /// `Err`, the transaction is rolled back; if it panics, its connection is closed, and the panic goes on.
    ///
    /// # Errors
    ///
    /// - [`LockedError::Begin`] if there is no connection to be had, or no transaction could be begun.
    /// - [`LockedError::Lock`] with [`TimedOut`](latchwork_core::xact::XactLockError::TimedOut) when the limit ran out.
    /// - [`LockedError::Body`], the body's own error.
    /// - [`LockedError::Aborted`] if the body says `Ok` though one of its statements had failed, or if the server
    ///   refuses the commit. Nothing was stored.
    /// - [`LockedError::OutcomeUnknown`] if the connection ended during the commit; if COMMIT was not answered within 5 s,
    ///   in which case it goes on, or its session is ended where it is still behind a statement that the body has given up;
    ///   or if the body has ended the transaction itself.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use latchwork_core::{Key, xact::{LockedError, XactOptions}};
    /// use latchwork_postgres::{deadpool_postgres::Pool, transaction::LockedTransactionExt as _};
    ///
    /// # async fn example(pool: Pool) -> Result<(), LockedError<tokio_postgres::Error>> {
    /// let (from, to) = (Key::row("accounts", 7), Key::row("accounts", 3));
    /// # let (from, to) = (from.unwrap(), to.unwrap());
    /// pool.locked_transaction([from, to], XactOptions::within(Duration::from_secs(2)), async |tx| {
    ///     tx.execute("UPDATE accounts SET balance = balance - 5 WHERE id = 7", &[]).await?;
    ///     tx.execute("UPDATE accounts SET balance = balance + 5 WHERE id = 3", &[]).await
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    fn locked_transaction<T, E, B>(
        &self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        body: B,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        T: Send,
        E: Send,
        B: for<'t> TransactionBody<&'t PooledTx, T, E>,
    {
        let wait = options.waits_for(keys.into());
        let pool = self.pool();
        async move { locked(pool, &wait, body).await }
    }

    /// Does the same if all of the keys are free, with exclusive locks; `Ok(None)` if others have one of them. Nothing
    /// is waited for, and the body has not run then.
    ///
    /// # Errors
    ///
    /// As [`locked_transaction`](Self::locked_transaction), never
    /// [`TimedOut`](latchwork_core::xact::XactLockError::TimedOut).
    fn try_locked_transaction<T, E, B>(
        &self,
        keys: impl Into<KeySet>,
        body: B,
    ) -> impl Future<Output = Result<Option<T>, LockedError<E>>> + Send
    where
        T: Send,
        E: Send,
        B: for<'t> TransactionBody<&'t PooledTx, T, E>,
    {
        let request = XactRequest::new(keys);
        run(self.pool(), move || XactWait::attempt(request.clone()), body)
    }

    /// Does the same as [`locked_transaction`](Self::locked_transaction), and again from the beginning if a
    /// serialization failure (40001) or a deadlock (40P01) ended it, in the lock, the body or the commit.
    ///
    /// There are `attempts` runs at most, with a random pause of 5 to 160 ms after each that failed; each has the whole
    /// limit for its locks. The body is cloned for each run, and what it does outside of its transaction it does again.
    /// Its error is searched for the driver's, or for a lock's, along [`source()`](std::error::Error::source).
    ///
    /// # Errors
    ///
    /// As [`locked_transaction`](Self::locked_transaction), those of the last run.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::{num::NonZeroU32, time::Duration};
    ///
    /// use latchwork_core::{Key, xact::{LockedError, XactOptions}};
    /// use latchwork_postgres::{deadpool_postgres::Pool, transaction::LockedTransactionExt as _};
    ///
    /// # async fn example(pool: Pool) -> Result<(), LockedError<tokio_postgres::Error>> {
    /// const FIVE: NonZeroU32 = NonZeroU32::new(5).unwrap();
    /// let options = XactOptions::within(Duration::from_secs(2));
    /// pool.retrying_locked_transaction(Key::bigint(42), options, FIVE, async |tx| {
    ///     tx.execute("UPDATE stock SET n = n - 1 WHERE item IN (SELECT item FROM orders)", &[]).await
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    fn retrying_locked_transaction<T, E, B>(
        &self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        attempts: NonZeroU32,
        body: B,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        T: Send,
        E: StdError + Send + 'static,
        B: Clone + for<'t> TransactionBody<&'t PooledTx, T, E>,
    {
        let wait = options.waits_for(keys.into());
        let pool = self.pool();
        async move {
            for failed in 1..attempts.get() {
                match locked(pool, &wait, body.clone()).await {
                    Err(error) if error.is_worth_another_run(is_conflict) => sleep(pause_after(failed)).await,
                    done => return done,
                }
            }
            locked(pool, &wait, body).await
        }
    }

    /// Runs the body in a transaction that has [proved](latchwork_core::fence) a fence: it commits before any later
    /// grant of the lock is handed out, or not at all. The proof is waited for for at most `limit`.
    ///
    /// # Errors
    ///
    /// As [`locked_transaction`](Self::locked_transaction);
    /// [`Superseded`](latchwork_core::xact::XactLockError::Superseded) if the grant is not in force any more.
    fn fenced_transaction<T, E, B>(
        &self,
        fence: &Fence,
        limits: FencedLimits,
        limit: Duration,
        body: B,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        T: Send,
        E: Send,
        B: for<'t> TransactionBody<&'t PooledTx, T, E>,
    {
        let wait = XactRequest::fenced(fence, limits).waits(Some(limit));
        let pool = self.pool();
        async move { locked(pool, &wait, body).await }
    }
}

impl LockedTransactionExt for Pool {}

mod sealed {
    use deadpool_postgres::Pool;

    #[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
    pub trait Opens: Sync {
        fn pool(&self) -> &Pool;
    }

    impl Opens for Pool {
        fn pool(&self) -> &Pool {
            self
        }
    }
}

/// As [`run`], with a wait that loses with an error.
async fn locked<T, E, B>(pool: &Pool, wait: impl Fn() -> XactWait + Send, body: B) -> Result<T, LockedError<E>>
where
    B: for<'t> TransactionBody<&'t PooledTx, T, E>,
{
    let done = run(pool, wait, body).await?;
    Ok(done.expect("a wait that is not granted ends with an error"))
}

async fn run<T, E, B>(pool: &Pool, wait: impl Fn() -> XactWait + Send, body: B) -> Result<Option<T>, LockedError<E>>
where
    B: for<'t> TransactionBody<&'t PooledTx, T, E>,
{
    let (tx, granted) = begin(pool, ANSWER_WITHIN, wait).await.map_err(not_begun)?;
    match granted {
        Ok(true) => {}
        lost => {
            undo(tx).await;
            return lost.map(|_| None).map_err(LockedError::Lock);
        }
    }
    match body(&tx).await {
        Ok(done) => commit(tx).await.map(|()| Some(done)),
        Err(error) => {
            undo(tx).await;
            Err(LockedError::Body(error))
        }
    }
}

/// A COMMIT that was sent goes on, whoever leaves. No task is spent on it: that would take the connection on to another
/// thread in each transaction, to have it back in its pool after the few that are left at this moment.
async fn commit<E>(tx: PooledTx) -> Result<(), LockedError<E>> {
    DeadpoolTx::commit(tx).await.map_err(|error| match error {
        TxError::OutcomeUnknown(cause) | TxError::Other(cause) | TxError::Setup(cause) => {
            LockedError::OutcomeUnknown(cause)
        }
        TxError::Unavailable(cause) | TxError::Aborted(cause) => LockedError::Aborted(cause),
        error => LockedError::OutcomeUnknown(error.into()),
    })
}

/// In a task of its own, so that the connection finds back to its pool, whoever leaves. What does not answer is closed.
async fn undo(tx: PooledTx) {
    // Nothing is stored whatever comes of it.
    let _ = spawn(DeadpoolTx::rollback(tx).in_current_span()).await;
}

fn not_begun<E>(error: TxError) -> LockedError<E> {
    LockedError::Begin(error.into())
}

/// Whether it is a serialization failure or a deadlock, as the driver says it. An error that is transparent for another
/// hides it, and shows what is in it.
fn is_conflict(error: &(dyn StdError + 'static)) -> bool {
    let code = match error.downcast_ref::<Error>() {
        Some(error) => error.code(),
        None => error.downcast_ref().map(DbError::code),
    };
    let condition = code.map(|code| Condition::of(code.code()));
    matches!(condition, Some(Condition::SerializationFailure | Condition::Deadlock))
}
