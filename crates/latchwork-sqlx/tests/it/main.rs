//! Locks in the transactions of sqlx, on a real PostgreSQL.

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
