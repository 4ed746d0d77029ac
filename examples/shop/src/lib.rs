//! What the shops on axum and on actix-web have in common: all but what makes a request of the framework's a call, and
//! a response of its outcome.
//!
//! - [`main`]: the command line, where the PostgreSQL is, and when to end.
//! - [`Shop`]: what an instance makes once and its requests share.
//! - [`rules`]: who may do what, and when.
//! - [`orders`], [`ai`], [`payments`], [`search`], [`stats`]: a route each.

pub mod ai;
mod args;
mod count;
mod database;
mod error;
mod failure;
mod instance;
pub mod orders;
pub mod payments;
pub mod rules;
pub mod search;
mod start;
pub mod stats;
mod stop;
mod tables;

pub use error::ShopError;
pub use failure::Failure;
pub use instance::Shop;
pub use start::main;
pub use stop::End;
