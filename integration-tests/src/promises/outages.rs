//! An outage is not contention, and ends locks and not patience.

use std::time::{Duration, Instant};

use latchwork_core::ReleaseError;
use tokio::time::timeout;

use super::fresh_key;
use crate::Breakable;
use crate::world::{LONG, View};

/// A dead server is never reported as "held by others", and in bounded time.
pub async fn a_dead_server_is_not_reported_as_busy<W: Breakable>(world: &W) {
    let process = world.process().await;
    let (held, free) = (fresh_key(), fresh_key());
    let guard = process.acquire(held).within(LONG).await.unwrap();
    world.stop_server();
    timeout(LONG, guard.lost()).await.expect("nobody told of the loss");
    for key in [held, free] {
        let begun = Instant::now();
        let error = process.try_acquire(key).await.unwrap_err();
        assert!(error.is_outage() && !error.is_timeout(), "{error:?}");
        for limit in [Duration::ZERO, Duration::from_micros(1), Duration::from_millis(150)] {
            let error = process.acquire(key).within(limit).await.unwrap_err();
            assert!(error.is_outage() && !error.is_timeout(), "{error:?} for {limit:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    let answer = guard.release().await;
    assert!(matches!(answer, Err(ReleaseError::Lost { .. })), "{answer:?}");
    world.start_server();
}

/// One who waits goes on waiting over a restart, and is served; one whose hold ended with it is told.
pub async fn a_wait_outlives_a_restart<W: Breakable>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let key = fresh_key();
    let guard = one.acquire(key).within(LONG).await.unwrap();
    let mut waiting = Box::pin(two.acquire(key).within(LONG));
    world.drive_until_waiting(1, waiting.as_mut()).await;
    let waiting = tokio::spawn(waiting);
    world.stop_server();
    world.start_server();
    timeout(LONG, guard.lost()).await.expect("nobody told of the loss");
    let second = waiting.await.unwrap().unwrap();
    world.becomes(View::held(1)).await;
    assert!(second.is_held());
    drop(guard);
    second.release().await.unwrap();
    one.acquire(key).within(LONG).await.unwrap().release().await.unwrap();
}
