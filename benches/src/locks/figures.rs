//! Figures that are not about cycles per second with a key for each task.

pub(crate) mod child;
pub(crate) mod hand_over;
pub(crate) mod latency;
pub(crate) mod memory;
pub(crate) mod turn;
