//! The program as users start it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod ai;
mod charges;
mod ends;
mod http;
mod outage;
mod payments;
mod program;
mod search;
mod usage;

/// The program to test. All else is the same for every shop.
const PROGRAM: &str = env!("CARGO_BIN_EXE_axum-shop");
