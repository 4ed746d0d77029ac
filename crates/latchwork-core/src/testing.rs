//! What several test modules need.

mod seed;
mod server;

pub(crate) use seed::Seed;
pub(crate) use server::Server;
