//! What the shops on axum and on actix-web have in common: all but their routes and handlers.
//!
//! - [`main`]: the command line, and where the PostgreSQL is.
//! - [`Shop`]: what an instance makes once and its requests share.
//! - [`ai`]: a call to a model, which goes on beside its request.

pub mod ai;
mod args;
mod count;
mod database;
mod error;
mod failure;
mod instance;
mod start;
mod stop;
mod tables;

pub use error::ShopError;
pub use failure::Failure;
pub use instance::Shop;
pub use start::main;
pub use stop::Stop;
