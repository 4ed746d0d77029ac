//! The PostgreSQL engine of latchwork.
//!
//! A process owns one **lock session**: a connection of its own, never from a pool, on which it takes and holds its
//! locks, thousands at once. Requests that come while one batch is on the wire go into the next. Waiting is done on a few
//! **waiter sessions**, which hold nothing meanwhile. All of it is behind [`Postgres`], which makes the
//! [`Locks`](latchwork_core::Locks) that everything else uses.
//!
//! [`Postgres::rate_limits`] gives rate limits that all processes share. They need a table, which [`schema`] makes;
//! and so do the ticks of [`Locks::once`](latchwork_core::Locks::once); nothing else does.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `tls` | yes | TLS to the server with rustls: `sslmode` up to `verify-full`, client certificates |
//! | `deadpool` | | transaction scope on deadpool-postgres' transactions; a transaction for each HTTP request |
//!
//! # Examples
//!
//! ```no_run
//! use std::time::Duration;
//! use latchwork_postgres::{Config, Postgres, PostgresOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config: Config = "postgres://shop@db.internal/shop".parse()?;
//! let postgres = Postgres::connect(config, PostgresOptions::default()).await?;
//! let locks = postgres.locks();
//! let guard = locks.acquire(["order", "42"]).within(Duration::from_secs(2)).await?;
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```

mod backoff;
mod batch;
#[cfg(feature = "blocking")]
pub mod blocking;
pub mod checks;
pub mod config;
pub mod connect;
mod engine;
mod error;
mod fenced;
mod identity;
mod in_flight;
mod inbox;
mod incumbent;
pub mod inspect;
mod ledger;
mod link;
mod lock_session;
mod markers;
mod options;
mod postgres;
mod queue;
mod quiet_slice;
mod quiet_waker;
mod rates;
mod room;
mod roster;
pub mod schema;
mod shared;
mod sql;
mod sqlstate;
mod statements;
pub mod survey;
mod sync;
pub mod tls;
pub mod transaction;
mod wait;
mod waiter;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "deadpool")]
pub use deadpool_postgres;

pub use config::Config;
pub use connect::ConnectError;
pub use error::StatementError;
pub use identity::{Granted, Identity};
pub use inspect::Inspection;
pub use options::{PostgresOptions, Timing};
pub use postgres::Postgres;
pub use rates::RateOptions;
