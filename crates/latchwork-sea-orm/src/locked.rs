use std::{error::Error, future::Future, num::NonZeroU32, time::Duration};

use latchwork_core::{
    fence::Fence,
    xact::{FencedLimits, KeySet, LockedError, XactOptions, XactRequest, XactWait, pause_after},
};
use sea_orm::{DatabaseConnection, DatabaseTransaction};
use tokio::{spawn, task::JoinHandle, time::sleep};
use tracing::Instrument as _;

use crate::{
    begin,
    end::{self, Ended},
    failure::is_conflict,
    open::{Open, PATIENCE},
    wire,
};

pub use latchwork_core::xact::TransactionBody;

/// Transactions that begin with a lock. Implemented for `DatabaseConnection`; nobody else can.
///
/// A transaction is READ COMMITTED, so that its work sees what the last holder has committed. It is committed if the body
/// returns `Ok`, and rolled back if it returns `Err` or panics, in which case the panic goes on. BEGIN and the lock are
/// one round trip each; COMMIT is one, with the question whether the transaction is alive.
///
/// The body may begin nested transactions, which are savepoints, and has to end them. It may not send COMMIT or ROLLBACK
/// itself.
///
/// Any error of the body will do. One that is no [`Error`] itself, such as `anyhow::Error`, joins those of
/// the transaction by [`LockedError::into_body`].
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use latchwork_sea_orm::{Key, LockedTransactionExt as _, XactOptions};
/// use sea_orm::{ConnectionTrait as _, DatabaseConnection, DbErr};
///
/// # async fn example(db: DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let charged = db
///     .locked_transaction(Key::bigint(42), XactOptions::within(Duration::from_secs(2)), async |tx| {
///         let done = tx
///             .execute_unprepared("UPDATE orders SET paid = true WHERE id = 42 AND NOT paid")
///             .await?;
///         Ok::<_, DbErr>(done.rows_affected() == 1)
///     })
///     .await?;
/// # let _ = charged;
/// # Ok(())
/// # }
/// ```
pub trait LockedTransactionExt: sealed::Sealed {
    /// Runs a body in a transaction that holds locks on one key or several, and commits it.
    ///
    /// The limit of the options counts from when there is a connection and a transaction; for those the pool has its own.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the body has ended, it is rolled back in a task of its own. What the server is doing for it then
    /// goes on before that: a wait to the end of its slice, about a second. A statement of the body has 1.5 s to end; then
    /// its session is ended, by a connection beside the pool. Dropped after the body has ended, COMMIT or ROLLBACK is
    /// carried out all the same.
    ///
    /// # Errors
    ///
    /// [`LockedError`]: the lock's, the body's, or that nothing was stored, or that this is not known.
    ///
    /// # Panics
    ///
    /// As the body does. Outside of a Tokio runtime.
    fn locked_transaction<T, E, F>(
        &self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        T: Send,
        E: Send,
        F: for<'t> TransactionBody<&'t DatabaseTransaction, T, E>;

    /// Runs a body in a transaction that holds exclusive locks, if all of them are free; `None` if somebody else has one.
    /// Otherwise as [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Cancel safety
    ///
    /// As [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Errors
    ///
    /// As [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Panics
    ///
    /// As [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use latchwork_sea_orm::{Key, LockedTransactionExt as _};
    /// use sea_orm::{ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbErr};
    ///
    /// async fn sweep(tx: &DatabaseTransaction) -> Result<u64, DbErr> {
    ///     let swept = tx.execute_unprepared("DELETE FROM carts WHERE expires < now()").await?;
    ///     Ok(swept.rows_affected())
    /// }
    ///
    /// # async fn example(db: DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
    /// if let Some(swept) = db.try_locked_transaction(Key::bigint(7), sweep).await? {
    ///     println!("{swept} carts");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn try_locked_transaction<T, E, F>(
        &self,
        keys: impl Into<KeySet>,
        body: F,
    ) -> impl Future<Output = Result<Option<T>, LockedError<E>>> + Send
    where
        T: Send,
        E: Send,
        F: for<'t> TransactionBody<&'t DatabaseTransaction, T, E>;

    /// Does as [`locked_transaction`](Self::locked_transaction), and all of it again after a serialization failure or a
    /// deadlock in the lock, the body or the commit, with a random pause of 5 to 160 ms in between: `attempts` times in all.
    ///
    /// The body's error is looked through by its `source()`, for what SeaORM and the driver say.
    ///
    /// # Cancel safety
    ///
    /// As [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Errors
    ///
    /// That of the last attempt.
    ///
    /// # Panics
    ///
    /// As [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::{num::NonZeroU32, time::Duration};
    ///
    /// use latchwork_sea_orm::{Key, LockedTransactionExt as _, XactOptions};
    /// use sea_orm::{ConnectionTrait as _, DatabaseConnection, DbErr};
    ///
    /// # async fn example(db: DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
    /// let (options, attempts) = (XactOptions::within(Duration::from_secs(2)), NonZeroU32::new(3).unwrap());
    /// db.retrying_locked_transaction(Key::bigint(42), options, attempts, async |tx| {
    ///     tx.execute_unprepared("UPDATE stock SET n = n - 1 WHERE id IN (1, 2)").await?;
    ///     Ok::<_, DbErr>(())
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    fn retrying_locked_transaction<T, E, F>(
        &self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        attempts: NonZeroU32,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        T: Send,
        E: Error + Send + 'static,
        F: for<'t> TransactionBody<&'t DatabaseTransaction, T, E> + Clone;

    /// Runs a body in a transaction that has [proved](latchwork_core::fence) a fence: it commits before any later grant of
    /// the lock is handed out, or not at all.
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
    /// [`LockedError::Lock`] with [`Superseded`](latchwork_core::xact::XactLockError::Superseded) if the grant is not in
    /// force any more: the body did not run. Otherwise as [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Panics
    ///
    /// As [`locked_transaction`](Self::locked_transaction).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use latchwork_sea_orm::{Fence, FencedLimits, LockedTransactionExt as _};
    /// use sea_orm::{ConnectionTrait as _, DatabaseConnection};
    ///
    /// # async fn example(db: DatabaseConnection, fence: Fence) -> Result<(), Box<dyn std::error::Error>> {
    /// let (limits, limit) = (FencedLimits::default(), Duration::from_secs(2));
    /// db.fenced_transaction(&fence, limits, limit, async |tx| tx.execute_unprepared("UPDATE totals SET n = n + 1").await)
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    fn fenced_transaction<T, E, F>(
        &self,
        fence: &Fence,
        limits: FencedLimits,
        limit: Duration,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        T: Send,
        E: Send,
        F: for<'t> TransactionBody<&'t DatabaseTransaction, T, E>;
}

impl LockedTransactionExt for DatabaseConnection {
    fn locked_transaction<T, E, F>(
        &self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        T: Send,
        E: Send,
        F: for<'t> TransactionBody<&'t DatabaseTransaction, T, E>,
    {
        let wait = options.waits_for(keys.into());
        async move { once(self, wait, body).await }
    }

    fn try_locked_transaction<T, E, F>(
        &self,
        keys: impl Into<KeySet>,
        body: F,
    ) -> impl Future<Output = Result<Option<T>, LockedError<E>>> + Send
    where
        T: Send,
        E: Send,
        F: for<'t> TransactionBody<&'t DatabaseTransaction, T, E>,
    {
        let request = XactRequest::new(keys);
        async move {
            let wait = || XactWait::attempt(request.clone());
            match locked(self, wait).await? {
                Some(open) => run(open, body).await.map(Some),
                None => Ok(None),
            }
        }
    }

    fn retrying_locked_transaction<T, E, F>(
        &self,
        keys: impl Into<KeySet>,
        options: XactOptions,
        attempts: NonZeroU32,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        T: Send,
        E: Error + Send + 'static,
        F: for<'t> TransactionBody<&'t DatabaseTransaction, T, E> + Clone,
    {
        let wait = options.waits_for(keys.into());
        async move {
            for failed in 1..attempts.get() {
                match once(self, &wait, body.clone()).await {
                    Err(error) if error.is_worth_another_run(is_conflict) => sleep(pause_after(failed)).await,
                    done => return done,
                }
            }
            once(self, wait, body).await
        }
    }

    fn fenced_transaction<T, E, F>(
        &self,
        fence: &Fence,
        limits: FencedLimits,
        limit: Duration,
        body: F,
    ) -> impl Future<Output = Result<T, LockedError<E>>> + Send
    where
        T: Send,
        E: Send,
        F: for<'t> TransactionBody<&'t DatabaseTransaction, T, E>,
    {
        let wait = XactRequest::fenced(fence, limits).waits(Some(limit));
        async move { once(self, wait, body).await }
    }
}

mod sealed {
    #[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
    pub trait Sealed {}

    impl Sealed for super::DatabaseConnection {}
}

async fn once<T, E, F>(
    database: &DatabaseConnection,
    wait: impl Fn() -> XactWait + Send + Sync,
    body: F,
) -> Result<T, LockedError<E>>
where
    F: for<'t> TransactionBody<&'t DatabaseTransaction, T, E>,
{
    match locked(database, wait).await? {
        Some(open) => run(open, body).await,
        None => unreachable!("a wait that is wanted ends with a grant or an error"),
    }
}

/// A transaction that has its locks; `None` if an attempt has found them taken.
async fn locked<E>(
    database: &DatabaseConnection,
    wait: impl Fn() -> XactWait + Send + Sync,
) -> Result<Option<Open>, LockedError<E>> {
    let opened = begin::open(database, wait).await;
    let (mut open, tried) = opened.map_err(|error| LockedError::Begin(error.into()))?;
    let mut wait = tried?;
    if !wire::run(&open, &mut wait, || true).await? {
        return Ok(None);
    }
    open.has_locked(wait.request());
    Ok(Some(open))
}

async fn run<T, E, F>(open: Open, body: F) -> Result<T, LockedError<E>>
where
    F: for<'t> TransactionBody<&'t DatabaseTransaction, T, E>,
{
    match body(&open).await {
        Ok(value) => commit(open).await.map(|()| value),
        Err(error) => {
            // The body's error is the one to tell. A connection whose ROLLBACK fails is closed by its pool.
            drop(in_task(open.roll_back(PATIENCE)).await);
            Err(LockedError::Body(error))
        }
    }
}

async fn commit<E>(open: Open) -> Result<(), LockedError<E>> {
    let commits = async move {
        let ended = end::commit(&open).await;
        if let Ended::Aborted(refusal) = &ended {
            // Nothing is stored, whatever comes of it.
            drop(end::settle(&open, refusal).await);
        }
        open.has_ended();
        ended
    };
    match in_task(commits).await {
        Ok(Ended::Committed) => Ok(()),
        Ok(Ended::Aborted(error)) => Err(LockedError::Aborted(error.into())),
        Ok(Ended::NotOurs) => Err(LockedError::OutcomeUnknown(NOT_OURS.into())),
        Ok(Ended::Unknown(error)) => Err(LockedError::OutcomeUnknown(error.into())),
        Err(error) => Err(LockedError::OutcomeUnknown(error.into())),
    }
}

/// Does what must not be dropped midway in a task of its own.
fn in_task<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    spawn(work.in_current_span())
}

const NOT_OURS: &str = "the body has ended the transaction itself; leave COMMIT and ROLLBACK to locked_transaction";
