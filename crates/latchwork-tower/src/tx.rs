//! A transaction with a lock for each request.

mod future;
mod layer;
mod locked;
mod service;
mod work;

pub use future::TxLockFuture;
pub use latchwork_http::tx::{CheckOutError, TxSlot, ends_well};
pub use layer::TxLockLayer;
pub use locked::LockedTx;
pub use service::TxLockService;
