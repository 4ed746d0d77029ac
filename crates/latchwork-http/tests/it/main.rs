//! What the policies promise, with requests of the `http` crate and the engine in memory.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail, helpers included")]

mod dead;
mod keys;
mod policies;
