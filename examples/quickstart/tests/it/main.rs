//! The program as users start it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod ends;
mod http;
mod program;
mod serve;
mod tour;
mod usage;
