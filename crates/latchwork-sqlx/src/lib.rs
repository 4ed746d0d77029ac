//! Locks of [latchwork](https://docs.rs/latchwork) in the transactions of sqlx.
//!
//! The lock and the work are on one connection and end together, at COMMIT, ROLLBACK, or when the connection closes.
//! There is nothing to release, and it works through a pooler in transaction mode. A key is excluded from whoever else
//! locks it in the same database: other libraries' transactions, and locks of session scope.
//!
//! - [`XactLockExt`] takes a lock in a transaction that you have begun.
//! - [`LockedTransactionExt`] begins, locks, runs a closure, and commits or rolls back; or proves a [`Fence`] instead,
//!   so that the work of a lock of session scope cannot be stored once that is lost.
//! - `SqlxTx`, with the feature `http`, opens a transaction for each HTTP request.
//!
//! What to know of such locks is told by [`latchwork_core::xact`].
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `http` | | `SqlxTx`, for the layers of latchwork-tower and latchwork-actix |
//!
//! # Examples
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use latchwork_sqlx::{Key, LockedTransactionExt as _, XactOptions};
//!
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let options = XactOptions::within(Duration::from_secs(2));
//! pool.locked_transaction(Key::bigint(42), options, async |tx| {
//!     sqlx::query("UPDATE orders SET paid = true WHERE id = 42").execute(&mut **tx).await
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```

mod end;
mod error;
mod ext;
#[cfg(feature = "http")]
mod http;
mod lent;
mod locked;
mod pooled;
mod sql;
mod wait;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use ext::{XactLock, XactLockExt, XactLockWait};
#[cfg(feature = "http")]
pub use http::{PooledTx, SqlxTx};
pub use locked::LockedTransactionExt;

pub use latchwork_core::{
    Key, Namespace,
    fence::Fence,
    xact::{FencedLimits, KeySet, LockedError, TransactionBody, XactLockError, XactOptions},
};
