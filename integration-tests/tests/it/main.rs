//! One binary for every test that needs a server, one module per subject.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod conformance;
mod connecting;
mod engine;
mod fake_server;
mod inspection;
mod tls;
mod transaction_scope;
