//! Locks of [latchwork](https://docs.rs/latchwork) in the transactions of diesel-async, on PostgreSQL.
//!
//! The lock and the work are on one connection and end together, at COMMIT, ROLLBACK, or when the connection closes.
//! There is nothing to release, and it works through a pooler in transaction mode. A key is excluded from whoever else
//! locks it in the same database: other libraries' transactions, and locks of session scope.
//!
//! - [`XactLockExt`] takes a lock in a transaction that you have begun.
//! - [`LockedTransactionExt`] begins, locks, runs a closure, and commits or rolls back.
//! - `DieselAsyncTx`, with the feature `http`, opens a transaction for each HTTP request.
//!
//! What to know of such locks is told by [`latchwork_core::xact`].
//!
//! # What diesel-async adds to it
//!
//! - A future of diesel-async that is dropped midway leaves its transaction open, with its locks, until the pool hands
//!   the connection out again. Whatever is begun here is rolled back in a task then.
//! - Its errors have no SQLSTATE. A deadlock, which is worth another try, is known by the server's message, in the
//!   languages that PostgreSQL is delivered in.
//! - A lock is asked for with a prepared statement, as everything is in diesel-async that has an answer. It is kept on the
//!   connection, so that BEGIN and a lock that is free are one round trip, and two when the connection is new. PgBouncer in
//!   transaction mode keeps such statements from 1.21 on. With an older one switch off the cache of prepared statements
//!   (`CacheSize::Disabled`), which costs a round trip each time, and the pool's test queries (`RecyclingMethod::Fast`, or
//!   `test_on_check_out(false)` of bb8).
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `deadpool` | | [`LockedTransactionExt`] on deadpool's pools |
//! | `bb8` | | [`LockedTransactionExt`] on bb8's pools |
//! | `http` | | `DieselAsyncTx`, for the layers of latchwork-tower and latchwork-actix; needs one of the two |
//!
//! # Examples
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use diesel_async::{AsyncPgConnection, RunQueryDsl as _};
//! use latchwork_diesel_async::{Key, LockedTransactionExt as _, XactOptions};
//!
//! # async fn example(mut connection: AsyncPgConnection) -> Result<(), Box<dyn std::error::Error>> {
//! let options = XactOptions::within(Duration::from_secs(2));
//! connection
//!     .locked_transaction(Key::bigint(42), options, async |tx| {
//!         diesel::sql_query("UPDATE orders SET paid = true WHERE id = 42").execute(tx).await
//!     })
//!     .await?;
//! # Ok(())
//! # }
//! ```

mod end;
mod error;
mod ext;
#[cfg(all(feature = "http", any(feature = "deadpool", feature = "bb8")))]
mod http;
mod lent;
mod locked;
#[cfg(any(feature = "deadpool", feature = "bb8"))]
mod pool;
#[cfg(any(feature = "deadpool", feature = "bb8"))]
mod pooled;
mod sql;
mod state;
mod wait;

#[cfg(all(doctest, feature = "deadpool"))]
#[doc = include_str!("../README.md")]
struct Readme;

pub use diesel_async;

pub use ext::{XactLock, XactLockExt, XactLockWait};
#[cfg(all(feature = "http", any(feature = "deadpool", feature = "bb8")))]
pub use http::{DieselAsyncTx, PooledTx};
pub use locked::{LockedTransactionExt, TransactionBody};

pub use latchwork_core::{
    Key, Namespace,
    fence::Fence,
    xact::{FencedLimits, KeySet, LockedError, XactLockError, XactOptions},
};
