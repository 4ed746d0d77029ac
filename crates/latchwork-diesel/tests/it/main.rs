//! Locks in the transactions of diesel, on a real server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

#[cfg(feature = "tokio")]
mod async_pools;
mod bodies;
mod commits;
#[cfg(feature = "http")]
mod http;
mod losses;
mod pools;
mod refusals;
mod support;
mod trips;
