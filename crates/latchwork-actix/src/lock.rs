//! A lock for each request.

mod held;
mod middleware;
mod service;

pub use held::HeldLock;
pub use middleware::LockMiddleware;
pub use service::LockService;
