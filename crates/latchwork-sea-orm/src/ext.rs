use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use latchwork_core::{
    Mode,
    xact::{KeySet, XactLockError, XactRequest, XactWait},
};
use sea_orm::{DatabaseExecutor, DatabaseTransaction};

use crate::wire;

/// Locks on an open transaction, which keeps them until it ends.
///
/// Implemented for `DatabaseTransaction`, nested ones too, and for `DatabaseExecutor`, which may have none; nobody else
/// can. A lock that a nested transaction takes is given up when that is rolled back.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use latchwork_sea_orm::{Key, XactLockExt as _};
/// use sea_orm::{ConnectionTrait as _, DatabaseConnection, TransactionTrait as _};
///
/// # async fn example(db: DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let transaction = db.begin().await?;
/// transaction.xact_lock(Key::bigint(42)).within(Duration::from_secs(2)).await?;
/// transaction.execute_unprepared("UPDATE accounts SET balance = balance - 1 WHERE id = 42").await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// A pool is in no transaction:
///
/// ```compile_fail,E0599
/// use latchwork_sea_orm::{Key, XactLockExt as _};
///
/// async fn example(db: sea_orm::DatabaseConnection) {
///     let locked = db.try_xact_lock(Key::bigint(42)).await;
/// }
/// ```
pub trait XactLockExt: sealed::MayBeOpen {
    /// Describes an exclusive lock on a key, or on several, which are taken all or none. It is taken by
    /// [`within`](XactLock::within) or [`without_limit`](XactLock::without_limit).
    fn xact_lock(&self, keys: impl Into<KeySet>) -> XactLock<'_> {
        XactLock::new(self.open(), XactRequest::new(keys))
    }

    /// Describes a shared lock on a key or several, which excludes exclusive ones only.
    fn xact_lock_shared(&self, keys: impl Into<KeySet>) -> XactLock<'_> {
        XactLock::new(self.open(), XactRequest::new(keys).with_mode(Mode::Shared))
    }

    /// Takes an exclusive lock on a key, or on several, if all are free, in one round trip. `false` means that somebody
    /// else has one; none is taken then.
    ///
    /// # Cancel safety
    ///
    /// Dropped midway, the transaction may have the lock; it goes when the transaction ends.
    ///
    /// # Errors
    ///
    /// [`XactLockError`], never [`TimedOut`](XactLockError::TimedOut).
    fn try_xact_lock(&self, keys: impl Into<KeySet>) -> impl Future<Output = Result<bool, XactLockError>> + Send {
        attempt(self.open(), XactRequest::new(keys))
    }

    /// Takes a shared lock if nobody holds it exclusively, in one round trip; otherwise as
    /// [`try_xact_lock`](Self::try_xact_lock).
    ///
    /// # Cancel safety
    ///
    /// As [`try_xact_lock`](Self::try_xact_lock).
    ///
    /// # Errors
    ///
    /// As [`try_xact_lock`](Self::try_xact_lock).
    fn try_xact_lock_shared(
        &self,
        keys: impl Into<KeySet>,
    ) -> impl Future<Output = Result<bool, XactLockError>> + Send {
        attempt(self.open(), XactRequest::new(keys).with_mode(Mode::Shared))
    }
}

impl XactLockExt for DatabaseTransaction {}

impl XactLockExt for DatabaseExecutor<'_> {}

mod sealed {
    use super::{DatabaseExecutor, DatabaseTransaction};

    #[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
    pub trait MayBeOpen {
        /// The open transaction, if there is one.
        fn open(&self) -> Option<&DatabaseTransaction>;
    }

    impl MayBeOpen for DatabaseTransaction {
        fn open(&self) -> Option<&DatabaseTransaction> {
            Some(self)
        }
    }

    impl MayBeOpen for DatabaseExecutor<'_> {
        fn open(&self) -> Option<&DatabaseTransaction> {
            match self {
                Self::Connection(_) => None,
                Self::Transaction(transaction) => Some(transaction),
                Self::OwnedTransaction(transaction) => Some(transaction),
            }
        }
    }
}

/// A lock that a transaction is about to take; it needs to be told how long it may wait.
#[must_use = "nothing is locked until `within` or `without_limit` is awaited"]
pub struct XactLock<'a> {
    transaction: Option<&'a DatabaseTransaction>,
    request: XactRequest,
}

impl<'a> XactLock<'a> {
    const fn new(transaction: Option<&'a DatabaseTransaction>, request: XactRequest) -> Self {
        Self { transaction, request }
    }

    /// Takes the lock in REPEATABLE READ and SERIALIZABLE too. The default is to refuse, since the work then does not
    /// see what the last holder has committed.
    pub fn allow_stale_snapshot(mut self) -> Self {
        self.request = self.request.allow_stale_snapshot();
        self
    }

    /// Waits for the lock, at most for `limit`. Zero makes one attempt.
    ///
    /// A lock that is free costs one round trip. For one that is not the server waits in slices of about 1 second, so
    /// that vacuum is not held up for longer; in between, a waiter loses its place in the queue. When the limit runs
    /// out the transaction is usable, and its `lock_timeout` is what it was, as it is after a grant.
    ///
    /// # Cancel safety
    ///
    /// Dropped midway, the server goes on waiting until the end of the slice, and the statements that follow on the
    /// same transaction wait with it, its ROLLBACK too. The transaction stays usable; it may be granted the lock
    /// meanwhile, which then goes when the transaction ends.
    ///
    /// # Errors
    ///
    /// [`XactLockError::TimedOut`] when the limit ran out, and the others. After
    /// [`NoAnswer`](XactLockError::NoAnswer) the connection keeps its place in the pool until the network gives it up,
    /// since SeaORM has no way to close it.
    pub fn within(self, limit: Duration) -> XactLockWait<'a> {
        self.wait(Some(limit))
    }

    /// Waits for the lock for ever.
    ///
    /// A holder that never ends then blocks this transaction, and the connection that it has, for as long.
    ///
    /// # Cancel safety
    ///
    /// As [`within`](Self::within).
    ///
    /// # Errors
    ///
    /// [`XactLockError`], never [`TimedOut`](XactLockError::TimedOut).
    pub fn without_limit(self) -> XactLockWait<'a> {
        self.wait(None)
    }

    fn wait(self, limit: Option<Duration>) -> XactLockWait<'a> {
        let wait = XactWait::within(self.request, limit);
        XactLockWait(Box::pin(run(self.transaction, wait)))
    }
}

impl fmt::Debug for XactLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XactLock")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

/// The wait for a lock on a transaction. See [`XactLock::within`].
#[must_use = "futures do nothing unless awaited"]
pub struct XactLockWait<'a>(Pin<Box<dyn Future<Output = Result<bool, XactLockError>> + Send + 'a>>);

impl Future for XactLockWait<'_> {
    type Output = Result<(), XactLockError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map_ok(drop)
    }
}

impl fmt::Debug for XactLockWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XactLockWait").finish_non_exhaustive()
    }
}

fn attempt(
    transaction: Option<&DatabaseTransaction>,
    request: XactRequest,
) -> impl Future<Output = Result<bool, XactLockError>> {
    run(transaction, XactWait::attempt(request))
}

async fn run(transaction: Option<&DatabaseTransaction>, mut wait: XactWait) -> Result<bool, XactLockError> {
    match transaction {
        Some(transaction) => wire::run(transaction, &mut wait, || true).await,
        None => Err(wait.no_transaction()),
    }
}
