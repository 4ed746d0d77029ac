//! The conformance suite: what every engine and scope of latchwork promises, one function a promise.
//!
//! - A [`World`] is one kind of lock server for one test: it makes [`Party`]s that compete for keys, and tells what the
//!   server itself says is held and waited for. A [`SessionWorld`] also makes whole processes.
//! - The [`promises`] are generic over the world. [`promises_of_every_scope`], [`promises_of_sessions`],
//!   [`promises_of_turns`], [`promises_of_attempts`] and [`promises_of_outages`] write one test a promise for the world
//!   that they are given.
//! - [`check()`] runs one promise in a fresh world. Afterwards, whatever the promise was, the server must hold nothing,
//!   nobody may wait there, the gates must be empty, and the server's log must be quiet.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod check;
mod meter;
mod party;
mod polling;
pub mod promises;
mod server;
mod suite;
mod world;
pub mod worlds;

pub use check::check;
pub use party::{Failure, Hold, Party};
pub use world::{Breakable, Counting, SessionWorld, Setup, View, World};
