use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use diesel_async::AsyncPgConnection;
use latchwork_core::{
    Mode,
    xact::{KeySet, XactLockError, XactRequest, XactWait},
};

use crate::wait;

/// Locks on an open transaction. Implemented for `AsyncPgConnection`, and so at hand on the connections of pools and in the
/// closures of `transaction`; nobody else can.
///
/// On a connection that has no transaction open, as diesel-async counts them, every method fails with
/// [`XactLockError::NoTransaction`] before anything is sent.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use diesel_async::{AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _};
/// use latchwork_diesel_async::{Key, XactLockExt as _};
///
/// # async fn example(mut connection: AsyncPgConnection) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// type AnyError = Box<dyn std::error::Error + Send + Sync>;
/// connection
///     .transaction(async |tx| {
///         tx.xact_lock(Key::bigint(42)).within(Duration::from_secs(2)).await?;
///         let debit = diesel::sql_query("UPDATE accounts SET balance = balance - 1 WHERE id = 42");
///         debit.execute(tx).await?;
///         Ok::<_, AnyError>(())
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// `transaction` of diesel-async says Ok for a transaction that the server has rolled back, as after an error that was not
/// passed on. [`locked_transaction`](crate::LockedTransactionExt::locked_transaction) does not.
pub trait XactLockExt: sealed::HasConnection {
    /// Describes an exclusive lock on a key, or on several, which are taken all or none. It is taken by
    /// [`within`](XactLock::within) or [`without_limit`](XactLock::without_limit).
    fn xact_lock(&mut self, keys: impl Into<KeySet>) -> XactLock<'_> {
        XactLock::new(self.connection(), XactRequest::new(keys))
    }

    /// Describes a shared lock on a key or several, which excludes exclusive ones only.
    fn xact_lock_shared(&mut self, keys: impl Into<KeySet>) -> XactLock<'_> {
        XactLock::new(self.connection(), XactRequest::new(keys).with_mode(Mode::Shared))
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
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use latchwork_diesel_async::{Key, XactLockExt as _};
    /// # async fn example(tx: &mut diesel_async::AsyncPgConnection) -> Result<(), Box<dyn std::error::Error>> {
    /// if !tx.try_xact_lock([Key::bigint(3), Key::bigint(7)]).await? {
    ///     println!("somebody else is at it");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn try_xact_lock(&mut self, keys: impl Into<KeySet>) -> impl Future<Output = Result<bool, XactLockError>> + Send {
        wait::run(self.connection(), XactWait::attempt(XactRequest::new(keys)))
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
        &mut self,
        keys: impl Into<KeySet>,
    ) -> impl Future<Output = Result<bool, XactLockError>> + Send {
        let request = XactRequest::new(keys).with_mode(Mode::Shared);
        wait::run(self.connection(), XactWait::attempt(request))
    }
}

impl XactLockExt for AsyncPgConnection {}

mod sealed {
    use diesel_async::AsyncPgConnection;

    #[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
    pub trait HasConnection {
        fn connection(&mut self) -> &mut AsyncPgConnection;
    }

    impl HasConnection for AsyncPgConnection {
        fn connection(&mut self) -> &mut AsyncPgConnection {
            self
        }
    }
}

/// A lock that a transaction is about to take; it needs to be told how long it may wait.
#[must_use = "nothing is locked until `within` or `without_limit` is awaited"]
pub struct XactLock<'a> {
    connection: &'a mut AsyncPgConnection,
    request: XactRequest,
}

impl<'a> XactLock<'a> {
    const fn new(connection: &'a mut AsyncPgConnection, request: XactRequest) -> Self {
        Self { connection, request }
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
    /// Dropped midway, the server goes on waiting until the end of the slice, and whatever the connection does next
    /// waits with it. The transaction stays usable; it may be granted the lock meanwhile, which then goes when the
    /// transaction ends. diesel-async ends no transaction whose future is dropped, and a pool of deadpool keeps its
    /// connection open, with its locks, until it is to be handed out again;
    /// [`locked_transaction`](crate::LockedTransactionExt::locked_transaction) rolls it back at once.
    ///
    /// # Errors
    ///
    /// [`XactLockError::TimedOut`] when the limit ran out, and the others.
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
        XactLockWait(Box::pin(wait::run(self.connection, wait)))
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
