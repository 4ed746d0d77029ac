//! What the layers promise: with mocks, and over real sockets with clients that leave.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod addresses;
mod bodies;
mod extractors;
mod grpc;
mod idempotency;
mod leaving;
mod loss;
mod mocks;
mod nesting;
mod plain_hyper;
mod support;
mod two_instances;
mod tx;
