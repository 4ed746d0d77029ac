//! The lock servers that the promises are kept on.

mod memory;
mod postgres;
mod transaction;

pub use memory::Memory;
pub use postgres::{Alone, Crowded, Direct, Flavour, Polling, Pooled, Postgresql};
pub use transaction::{Transacted, Transactions};
