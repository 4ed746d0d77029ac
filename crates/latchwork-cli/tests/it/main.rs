//! The command as people run it: its real binary, against throw-away servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod elections;
mod inspection;
mod keys;
mod losses;
mod once;
mod running;
mod servers;
mod signals;
mod standing_still;
mod support;
mod terminals;
