//! What a type that wears a policy takes over from it: its builder, and how it is made, copied and shown. Written once for
//! all adapters, so that a policy has the same methods, words and defaults on each framework.
//!
//! For the adapters of this workspace alone: nothing here is public API.
//!
//! A wearer has one field, `policy: Arc<..Policy<$head, ..>>`; it is copied on write, so that all services of a layer share
//! one.

mod idempotency;
mod lock;
mod rate_limit;
mod slot;
mod tx_lock;
