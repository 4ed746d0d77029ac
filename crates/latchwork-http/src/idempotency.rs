//! Requests that may be sent again: each `Idempotency-Key` is worked on once, and whoever repeats it is given the first
//! response.
//!
//! The claim on a key, the handler's own writes and the response that is kept commit in one transaction, which the
//! handler is given by [`LockedTx`](crate::tx::LockedTx). A key that is being worked on is a lock of that transaction: a
//! process that dies takes the lock along, and the next attempt runs at once.
//!
//! Records are kept in the table `latchwork.idempotency`, and found by principal, method, route and key. A request that
//! repeats a key with another path, query, content type or body is refused.

mod begin;
mod digest;
mod header;
mod policy;
mod record;
mod run;
mod sql;
mod sweep;

pub use begin::{Begin, Begun};
pub use policy::{IdempotencyPolicy, IdempotentRequest};
pub use run::{Finish, IdempotentRun};
