//! Locks of [latchwork](https://docs.rs/latchwork) in the transactions of diesel.
//!
//! The lock and the work are on one connection and end together, at COMMIT, ROLLBACK, or when the connection closes.
//! There is nothing to release and nothing to lose, and it works through a pooler in transaction mode.
//!
//! - [`LockedTransactionExt`] opens a transaction that holds its locks, runs a closure in it, and commits. What has not
//!   been committed is never reported as if it had been. It can prove a [`Fence`] instead, so that the work of a lock of
//!   session scope cannot be stored once that is lost.
//! - [`XactLockExt`] takes locks in a transaction that is open already.
//!
//! Both are there on every connection to PostgreSQL that diesel has: `PgConnection`, a connection of an r2d2 pool, and
//! what others have put around them. What to know of such locks is told by [`latchwork_core::xact`].
//!
//! # Blocking
//!
//! All of it blocks its thread, as diesel does. In an async service it runs on a thread for that:
//!
//! - `LockedPoolExt`, with the feature `tokio`, has a pool run a whole locked transaction on one. What nobody waits for any
//!   more stops before its body runs, or goes on to its end.
//! - `DieselTx`, with the feature `http`, opens a transaction for each HTTP request, whose handler says in closures what is
//!   to run on it.
//! - Anything else is for `tokio::task::spawn_blocking`. Nothing stops such a thread from outside: if its future is
//!   dropped, the transaction runs to its end all the same, so a limit for the wait is the limit for an abandoned request
//!   too.
//!
//! A server that does not answer at all is waited for as long as libpq waits for it. To be sure, set `keepalives_idle`
//! and `tcp_user_timeout` in the connection's URL.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `r2d2` | yes | [`LockedTransactionExt`] on the connections of an r2d2 pool |
//! | `tokio` | | `LockedPoolExt`: locked transactions of an r2d2 pool for async code, on blocking threads |
//! | `http` | | `DieselTx`, for the layers of latchwork-tower and latchwork-actix |
//!
//! # Examples
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use diesel::{PgConnection, prelude::*, sql_query};
//! use latchwork_diesel::{Key, LockedTransactionExt as _, XactOptions};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut conn = PgConnection::establish("postgresql:///shop")?;
//! let stored = conn.locked_transaction(Key::bigint(42), XactOptions::within(Duration::from_secs(2)), |conn| {
//!     sql_query("UPDATE accounts SET balance = balance - 1 WHERE id = 42").execute(conn)
//! })?;
//! assert_eq!(stored, 1);
//! # Ok(())
//! # }
//! ```

mod begin;
#[cfg(feature = "tokio")]
mod blocking;
mod commit;
mod errors;
#[cfg(feature = "http")]
mod http;
mod lock;
mod locked;
#[cfg(feature = "tokio")]
mod pool;
mod state;

#[cfg(feature = "http")]
pub use http::{DieselTx, PooledTx};
pub use latchwork_core::{
    Key, Namespace,
    fence::Fence,
    xact::{FencedLimits, KeySet, LockedError, XactLockError, XactOptions},
};
pub use lock::{XactLock, XactLockExt};
pub use locked::LockedTransactionExt;
#[cfg(feature = "tokio")]
pub use pool::LockedPoolExt;

#[cfg(all(doctest, feature = "r2d2"))]
#[doc = include_str!("../README.md")]
struct Readme;
