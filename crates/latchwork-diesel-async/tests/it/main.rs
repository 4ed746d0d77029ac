//! Locks in the transactions of diesel-async, on a real PostgreSQL.

#![cfg(all(feature = "deadpool", feature = "bb8"))]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod cancel;
mod ends;
#[cfg(feature = "http")]
mod http;
mod lent;
mod locked;
mod losses;
mod support;
mod trips;
mod xact;
