//! A lock for each request.

mod held;
mod middleware;
mod policy;

pub use held::HeldLock;
pub use middleware::LockMiddleware;
