//! The local gate: one entry for each key that this process holds or wants.
//!
//! PostgreSQL's own exclusion is between sessions, and all tasks of a process share one. So the gate gives exclusion
//! inside the process, queues local waiters first-in first-out, and hands a key from one local holder to the next
//! without a word to the server, within a [`HandOverBound`].
//!
//! The gate is a pure state machine: it takes values and a moment, and returns [`Action`]s for its async shell
//! (`locks/inner.rs`) to carry out after the mutex is free.

mod action;
mod answers;
mod bound;
mod counters;
mod entry;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use action::{Action, Entered};
pub use bound::HandOverBound;
pub(crate) use counters::Counters;
pub(crate) use entry::Want;
pub(crate) use table::{Released, Table};
