//! The lock servers that the promises are kept on.

mod memory;
mod postgres;

pub use memory::Memory;
pub use postgres::{Alone, Crowded, Direct, Flavour, Polling, Pooled, Postgresql};
