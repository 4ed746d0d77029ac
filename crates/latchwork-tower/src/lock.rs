//! A lock for each request.

mod future;
mod held;
mod layer;
mod service;
mod work;

pub use future::LockFuture;
pub use held::HeldLock;
pub use layer::LockLayer;
pub use service::LockService;
