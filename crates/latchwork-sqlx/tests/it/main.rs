//! Locks in the transactions of sqlx, on a real PostgreSQL.

mod support;
mod xact;
