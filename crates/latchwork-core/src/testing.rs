//! What several test modules need.

mod engine;
mod poll;
mod seed;
mod server;

pub(crate) use engine::ScriptedEngine;
pub(crate) use poll::{Polled, poll};
pub(crate) use seed::Seed;
pub(crate) use server::Server;
