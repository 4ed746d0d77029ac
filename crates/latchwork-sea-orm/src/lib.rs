//! Locks of [latchwork](https://docs.rs/latchwork) in the transactions of SeaORM, on PostgreSQL.
//!
//! The lock and the work are in one transaction and end together. There is nothing to release and nothing to lose; it
//! works through a pooler in transaction mode; and whoever takes the same key through another library is kept out, or
//! keeps out.
//!
//! - [`LockedTransactionExt`] on a `DatabaseConnection`: begins, locks, runs a body, commits. What it calls committed is
//!   committed, which SeaORM's own `transaction` cannot say: COMMIT of an aborted transaction "succeeds".
//! - [`XactLockExt`] on a `DatabaseTransaction`: takes a lock in a transaction of your own.
//! - `SeaOrmTx`, with the feature `http`: a transaction with a lock for each HTTP request.
//!
//! What to know of such locks is told by [`latchwork_core::xact`].
//!
//! # What SeaORM adds to it
//!
//! - A transaction cannot be closed, only rolled back on its way to the pool, which waits for whatever statement the
//!   server is at. So one that was given up has 1.5 s to end; then its session is ended by a connection of its own beside
//!   the pool, told apart by its lock and its times. If the network is silent too, the connection keeps its place in the
//!   pool until the network gives it up; so set `tcp_keepalives_*` on the server, or
//!   `idle_in_transaction_session_timeout`.
//! - `begin()` that is dropped midway leaves the pooled connection inside a transaction, whose next borrower works in it
//!   without knowing. Here BEGIN runs in a task of its own; and what others have left open is rolled back, not committed.
//! - `begin()` of a nested transaction that is dropped midway rolls back all of it, and what comes after that is in no
//!   transaction. A locked transaction in which that has happened is called neither committed nor rolled back.
//! - A wait of a second is a slow statement for the driver, which may log it as such: see
//!   `sqlx_slow_statements_logging_settings`.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `http` | | `SeaOrmTx`: a transaction for each HTTP request, for the layers of `latchwork-tower` and `latchwork-actix` |
//!
//! # Examples
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use latchwork_sea_orm::{Key, LockedTransactionExt as _, XactOptions};
//! use sea_orm::{ConnectionTrait as _, Database, DbErr};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let db = Database::connect("postgres://shop@db.internal/shop").await?;
//! let patient = XactOptions::within(Duration::from_secs(2));
//! db.locked_transaction(Key::bigint(42), patient, async |tx| {
//!     tx.execute_unprepared("UPDATE accounts SET balance = balance - 1 WHERE id = 42").await?;
//!     Ok::<_, DbErr>(())
//! })
//! .await?;
//! # Ok(())
//! # }
//! ```

mod begin;
mod end;
mod ext;
mod failure;
mod locked;
mod open;
#[cfg(feature = "http")]
mod provider;
mod wire;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use sea_orm;

pub use ext::{XactLock, XactLockExt, XactLockWait};
pub use latchwork_core::{
    Key, Namespace,
    fence::Fence,
    xact::{FencedLimits, KeySet, LockedError, XactLockError, XactOptions},
};
pub use locked::{LockedTransactionExt, TransactionBody};
#[cfg(feature = "http")]
pub use provider::{PooledTx, SeaOrmTx};
