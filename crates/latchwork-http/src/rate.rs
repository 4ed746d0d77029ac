//! So many requests in so much time, counted over all instances.

mod check;
mod headers;
mod policy;

pub use check::{RateCheck, RateVerdict};
pub use headers::RateHeaders;
pub use policy::RateLimitPolicy;
