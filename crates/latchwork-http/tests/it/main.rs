//! What the policies promise, with requests of the `http` crate and the engine in memory.

mod dead;
mod keys;
mod policies;
