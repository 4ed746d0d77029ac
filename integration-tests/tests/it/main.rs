//! One binary for every test that needs a server, one module per subject.

mod connecting;
mod fake_server;
mod tls;
