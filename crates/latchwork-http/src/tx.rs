//! A transaction for each request: begun with its lock, and ended before the answer's headers leave.
//!
//! [`TxProvider`] is what an adapter of a database library implements. Beginning and ending run in tasks of their own,
//! never in the request's future: whoever drops that future at any moment, the transaction is rolled back and its
//! connection is clean or closed.

mod attempt;
mod error;
mod join;
mod open;
mod policy;
mod provider;
mod request;
mod slot;
mod task;

pub use attempt::TxAttempt;
pub use error::TxError;
pub use open::{OpenTx, TxEnd};
pub use policy::{TxLockPolicy, ends_well};
pub use provider::{SqlValue, TxProvider, TxRow};
pub use request::TxRequest;
pub use slot::{CheckOutError, LockedTx, TxSlot};
pub(crate) use task::in_task;
