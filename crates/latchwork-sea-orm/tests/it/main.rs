//! What this crate promises, on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod cancelling;
mod leftovers;
mod locked;
mod locks;
#[cfg(feature = "http")]
mod provider;
mod retrying;
mod support;
mod trips;
mod unfinished;
mod worlds;
