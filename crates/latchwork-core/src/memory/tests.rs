//! The whole core, from futures to guards, over the server in memory.

mod cancellation;
mod exclusion;
mod fenced;
mod limits;
mod loss;
mod slots;
mod threads;

use std::{
    thread,
    time::{Duration, Instant},
};

use super::MemoryServer;
use crate::{HandOverBound, Locks, LocksOptions};

/// Locks whose turns never end, for tests that a slow machine must not make fail: turns end by the real clock.
fn without_bound(server: &MemoryServer) -> Locks {
    server.locks_with(LocksOptions {
        hand_over: HandOverBound::new(u32::MAX, Duration::MAX),
        ..LocksOptions::default()
    })
}

/// What every test ends with: the server's own view.
fn nothing_is_left(server: &MemoryServer) {
    assert_eq!(
        (server.held(), server.queued()),
        (0, 0),
        "held and queued on the server"
    );
}

/// The same once the questions for slots that wait for their interval are over: they hold on to their pool and its
/// marker.
fn nothing_is_left_in_the_end(server: &MemoryServer) {
    let begin = Instant::now();
    while server.held() > 0 && begin.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(1));
    }
    nothing_is_left(server);
}
