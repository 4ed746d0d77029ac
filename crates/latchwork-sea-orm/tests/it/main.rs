//! What this crate promises, on a real PostgreSQL.

mod cancelling;
mod crowds;
mod leftovers;
mod locked;
mod locks;
#[cfg(feature = "http")]
mod provider;
mod retrying;
mod support;
mod trips;
mod waits;
mod worlds;
