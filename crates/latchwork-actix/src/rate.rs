//! So many requests in so much time.

mod middleware;
mod policy;

pub use middleware::RateLimitMiddleware;
