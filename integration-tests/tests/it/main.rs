//! One binary for every test that needs a server, one module per subject.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod blocking;
mod conformance;
mod connecting;
mod crowds;
mod fake_server;
mod fenced;
mod holders;
mod http;
mod inspection;
mod keys;
mod leader;
mod libraries;
mod losses;
mod migrations;
mod once;
mod onlooker;
mod outages;
mod quiet;
mod rates;
mod shards;
mod sql_forms;
mod tls;
mod transaction_scope;
mod waiting;
mod worlds;
