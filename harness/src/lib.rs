//! Throw-away PostgreSQL clusters, poolers, proxies and processes for the tests, benches and examples of latchwork.
//!
//! Everything lives in a temporary folder of its own, is reached through a unix socket in that folder, and is stopped
//! and removed however the process ends: drop, panic, exit or `kill -9`. A small supervisor process, blocked on a pipe
//! whose only writer is this process, sees to that.
//!
//! PostgreSQL refuses to run as root, so as root the servers run as the user `postgres`, or `nobody` where there is no
//! such user.
//!
//! ```no_run
//! use latchwork_harness::Cluster;
//!
//! # fn main() -> Result<(), latchwork_harness::HarnessError> {
//! let cluster = Cluster::builder().setting("max_connections", "300").start()?;
//! println!("connect to {}", cluster.url());
//! assert_eq!(cluster.psql("SHOW max_connections")?, "300");
//! # Ok(())
//! # }
//! ```

mod cluster;
#[cfg(feature = "database")]
pub mod database;
mod error;
#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "http")]
pub mod http;
mod installation;
mod pgbouncer;
mod process;
mod proxy;
mod psql;
mod redis;
mod scratch;
mod server;
mod supervisor;
mod template;
mod url;
mod user;
mod wait;

pub use cluster::{Cluster, ClusterBuilder, StopMode};
pub use error::HarnessError;
pub use installation::{Installation, SHARED_UNPACK_FOLDER, find_program};
pub use pgbouncer::{PgBouncer, PgBouncerBuilder, PoolMode};
pub use process::Process;
pub use proxy::{Endpoint, Proxy};
pub use redis::Redis;
pub use rustix::process::Signal;
pub use wait::wait_until;
