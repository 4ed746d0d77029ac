//! HTTP clients that can leave at any moment, and handlers that are told when to end.
//!
//! Everything here panics where something does not happen in time: it is for tests only.

mod client;
mod stage;

use std::{future::Future, time::Duration};

use tokio::time::timeout;

pub use client::{Answer, Client, Leave, WAYS_TO_LEAVE, ask, ask_with};
pub use stage::{Event, Stage, Watcher, stage};

/// How long a step of a test may take, on a machine that does much else.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What comes in time.
///
/// # Panics
///
/// When it takes longer than [`PATIENCE`].
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it happens in time")
}
