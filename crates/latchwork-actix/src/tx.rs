//! A transaction with a lock for each request.

mod locked;
mod middleware;
mod policy;

pub use latchwork_http::tx::{CheckOutError, TxSlot, ends_well};
pub use locked::LockedTx;
pub use middleware::TxLockMiddleware;
