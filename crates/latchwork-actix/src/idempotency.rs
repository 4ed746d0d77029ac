//! Requests that may be sent again.

mod exchange;
mod middleware;
mod policy;

pub use middleware::IdempotencyMiddleware;
