//! Locks in the transactions of diesel, on a real server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

#[cfg(feature = "tokio")]
mod async_pools;
mod bodies;
mod commits;
mod fenced;
#[cfg(feature = "http")]
mod http;
mod locks;
mod losses;
mod poolers;
mod pools;
mod refusals;
mod retries;
mod several;
mod support;
mod trips;
