//! Transaction scope: locks that a transaction takes for itself and keeps until it ends.
//!
//! The lock and the work are on one connection and end together, at COMMIT, ROLLBACK, or when the connection closes.
//! There is nothing to release, nothing to lose, and it works through a pooler in transaction mode. The price is a
//! connection for as long as the lock is held.
//!
//! [`XactLockExt`] gives the methods to `tokio_postgres::Transaction`, and with the feature `deadpool` to
//! `deadpool_postgres::Transaction`. With that feature there is also `DeadpoolTx`, which opens a transaction for each
//! HTTP request.
//!
//! What to know of such locks is told by [`latchwork_core::xact`].

#[cfg(feature = "deadpool")]
mod deadpool;
mod tick;
mod wait;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use latchwork_core::{
    Mode,
    fence::Fence,
    xact::{FencedLimits, XactRequest, XactWait},
};
use tokio_postgres::{Client, SimpleQueryMessage};

#[cfg(feature = "deadpool")]
pub use deadpool::{DeadpoolTx, LockedTransactionExt, OnRuntime, PooledTx};
pub use latchwork_core::xact::{KeySet, XactLockError};
pub use tick::TickExt;

/// Locks on an open transaction. Implemented for the transactions of the driver and of its pools; nobody else can.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use latchwork_core::Key;
/// use latchwork_postgres::transaction::XactLockExt as _;
///
/// # async fn example(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let transaction = client.transaction().await?;
/// transaction.xact_lock(Key::bigint(42)).within(Duration::from_secs(2)).await?;
/// transaction.execute("UPDATE accounts SET balance = balance - 1 WHERE id = 42", &[]).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
pub trait XactLockExt: sealed::HasClient {
    /// Describes an exclusive lock on a key, or on several, which are taken all or none. It is taken by
    /// [`within`](XactLock::within) or [`without_limit`](XactLock::without_limit).
    fn xact_lock(&self, keys: impl Into<KeySet>) -> XactLock<'_> {
        XactLock::new(self.driver_client(), XactRequest::new(keys))
    }

    /// Describes a shared lock on a key or several, which excludes exclusive ones only.
    fn xact_lock_shared(&self, keys: impl Into<KeySet>) -> XactLock<'_> {
        XactLock::new(self.driver_client(), XactRequest::new(keys).with_mode(Mode::Shared))
    }

    /// Describes the proof of a [`Fence`]: from it on until the transaction ends, no later grant of that lock is handed
    /// out. It has to be the first thing that the transaction does, not under a savepoint, and in READ COMMITTED. A
    /// limit that is too short for the server's answer proves nothing.
    ///
    /// [`XactLockError::Superseded`] says that the grant is not in force any more.
    fn prove_fence(&self, fence: &Fence, limits: FencedLimits) -> XactLock<'_> {
        XactLock::new(self.driver_client(), XactRequest::fenced(fence, limits))
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
        wait::attempt(self.driver_client(), XactRequest::new(keys))
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
        wait::attempt(self.driver_client(), XactRequest::new(keys).with_mode(Mode::Shared))
    }
}

impl XactLockExt for tokio_postgres::Transaction<'_> {}

#[cfg(feature = "deadpool")]
impl XactLockExt for deadpool_postgres::Transaction<'_> {}

mod sealed {
    use tokio_postgres::Client;

    #[expect(unnameable_types, reason = "nobody else can implement a trait that they cannot name")]
    pub trait HasClient {
        fn driver_client(&self) -> &Client;
    }

    impl HasClient for tokio_postgres::Transaction<'_> {
        fn driver_client(&self) -> &Client {
            self.client()
        }
    }

    #[cfg(feature = "deadpool")]
    impl HasClient for deadpool_postgres::Transaction<'_> {
        fn driver_client(&self) -> &Client {
            self.client()
        }
    }
}

/// A lock that a transaction is about to take; it needs to be told how long it may wait.
#[must_use = "nothing is locked until `within` or `without_limit` is awaited"]
pub struct XactLock<'a> {
    client: &'a Client,
    request: XactRequest,
}

impl<'a> XactLock<'a> {
    const fn new(client: &'a Client, request: XactRequest) -> Self {
        Self { client, request }
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
    /// same connection wait with it. The transaction stays usable; it may be granted the lock meanwhile, which then
    /// goes when the transaction ends.
    ///
    /// # Errors
    ///
    /// [`XactLockError::TimedOut`] when the limit ran out, and the others.
    pub fn within(self, limit: Duration) -> XactLockWait<'a> {
        XactLockWait(Box::pin(wait::run(
            self.client,
            XactWait::within(self.request, Some(limit)),
        )))
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
        XactLockWait(Box::pin(wait::run(self.client, XactWait::within(self.request, None))))
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

/// The text in the first column of the first row.
pub(crate) fn first_text(messages: &[SimpleQueryMessage]) -> Option<String> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten().map(str::to_owned),
        _ => None,
    })
}
