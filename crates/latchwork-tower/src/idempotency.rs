//! Requests that may be sent again.

mod exchange;
mod layer;
mod service;

pub use layer::IdempotencyLayer;
pub use service::{IdempotencyFuture, IdempotencyService};
