//! What is asserted after every promise.

use std::time::Instant;

use crate::World;
use crate::polling::step;
use crate::world::{SETTLES, View};

/// Checks one promise in a world of its own.
///
/// # Panics
///
/// If the promise is broken, or if it leaves anything behind: a lock or a waiter in the server, an entry in a gate, a
/// line of trouble in the server's log.
pub async fn check<W: World>(promise: impl AsyncFnOnce(&W)) {
    let world = W::start().await;
    promise(&world).await;
    let begun = Instant::now();
    while let Some(leftovers) = world.leftovers() {
        assert!(begun.elapsed() < SETTLES, "left in this process: {leftovers}");
        step().await;
    }
    world.settles_to(View::NOTHING).await;
    let complaints = world.complaints().await;
    assert!(complaints.is_empty(), "in the server's log: {complaints:#?}");
    world.end().await;
}
