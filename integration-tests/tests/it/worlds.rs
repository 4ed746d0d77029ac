//! Worlds in which locks cannot be had, or not as many: each is told with what to do about it.

mod capacity;
mod inputs;
mod poolers;
mod standbys;
