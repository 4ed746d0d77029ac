//! What the shops do, as their users start them: one text for whichever programs it is run on.
//!
//! - [`scenarios_of_one!`] writes one test a scenario for one [`Program`].
//! - [`scenarios_of_two!`] writes one test a scenario for a [`Pair`] of instances on one database, of one program or of
//!   two.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]
#![expect(missing_docs, reason = "a scenario's name says what it shows")]

pub mod ai;
pub mod alike;
pub mod charges;
pub mod ends;
mod http;
pub mod outage;
pub mod payments;
mod program;
pub mod search;
mod suite;
pub mod usage;

pub use program::{Pair, Program};
