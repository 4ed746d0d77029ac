//! So many requests in so much time.

mod layer;
mod service;

pub use layer::RateLimitLayer;
pub use service::{RateLimitFuture, RateLimitService};
