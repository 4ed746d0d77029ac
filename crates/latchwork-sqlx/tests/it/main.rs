//! Locks in the transactions of sqlx, on a real PostgreSQL.

mod cancel;
mod crowds;
mod ends;
#[cfg(feature = "http")]
mod http;
mod lent;
mod locked;
mod losses;
mod retry;
mod support;
mod xact;
