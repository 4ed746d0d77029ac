//! What the middleware promises: with services called by hand, and over real sockets with clients that leave.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod addresses;
mod bodies;
mod extractors;
mod http2;
mod idempotency;
mod leaving;
mod loss;
mod nesting;
mod rate;
mod support;
mod tx;
mod workers;

use latchwork_harness::database;
