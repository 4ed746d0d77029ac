//! Locks in the transactions of diesel, on a real server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod bodies;
mod commits;
mod losses;
mod pools;
mod refusals;
mod support;
mod trips;
