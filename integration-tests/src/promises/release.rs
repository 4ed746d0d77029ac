//! Release is final and reported.

use std::time::Duration;

use latchwork_core::AcquireError;

use super::fresh_key;
use crate::SessionWorld;
use crate::world::{LONG, View};

/// A release says that the key was held to the end, and others have the key at once.
pub async fn a_release_is_reported_and_final<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let key = fresh_key();
    for _ in 0..20 {
        let guard = one.acquire(key).within(LONG).await.unwrap();
        guard.release().await.unwrap();
        // It was answered, so no patience is needed.
        let guard = two.try_acquire(key).await.unwrap().expect("it was released");
        guard.release().await.unwrap();
    }
    world.settles_to(View::NOTHING).await;
}

/// What was released is not released again by what happens to its holder later, nor by the end of others' guards.
pub async fn a_release_ends_one_hold_only<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let key = fresh_key();
    let first = one.acquire(key).within(LONG).await.unwrap();
    let released = first.release();
    let second = two.acquire(key).within(LONG).await.unwrap();
    // The old release is looked at, and dropped, under the new holder.
    released.await.unwrap();
    assert!(one.try_acquire(key).await.unwrap().is_none());
    world.becomes(View::held(1)).await;
    assert!(second.is_held());
    second.release().await.unwrap();
    // Of shared holders, each gives up its own hold.
    let (a, b) = (
        one.acquire(key).shared().within(LONG).await.unwrap(),
        two.acquire(key).shared().within(LONG).await.unwrap(),
    );
    a.release().await.unwrap();
    assert!(one.try_acquire(key).await.unwrap().is_none());
    assert!(b.is_held());
    b.release().await.unwrap();
}

/// A dropped guard releases, wherever it is dropped.
pub async fn a_guard_may_be_dropped_without_a_runtime<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let slots = one.slots("pool", 1).unwrap();
    let key = fresh_key();
    for _ in 0..5 {
        let guard = one.acquire(key).within(LONG).await.unwrap();
        let permit = slots.acquire().within(LONG).await.unwrap();
        std::thread::spawn(move || drop((guard, permit))).join().unwrap();
        two.acquire(key).within(LONG).await.unwrap().release().await.unwrap();
        // The pool's marker stays.
        world.settles_to(View::held(1)).await;
    }
}

/// A guard that panicking work held is released.
pub async fn a_panic_releases<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let key = fresh_key();
    let guard = one.acquire(key).within(LONG).await.unwrap();
    let work = tokio::spawn(async move {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("a panic without a message"));
    });
    assert!(work.await.unwrap_err().is_panic());
    two.acquire(key).within(LONG).await.unwrap().release().await.unwrap();
}

/// A process that is closed refuses new acquires, tells those who wait, waits for its holders, and leaves nothing.
pub async fn closing_waits_for_holders_and_leaves_nothing<W: SessionWorld>(world: &W) {
    world.allow(super::cancellation::CANCELLED, usize::MAX);
    let (one, two) = (world.process().await, world.process().await);
    let (own, others) = (fresh_key(), fresh_key());
    let held = two.acquire(others).within(LONG).await.unwrap();
    let guard = one.acquire(own).within(LONG).await.unwrap();
    let mut waiting = Box::pin(one.acquire(others).without_limit());
    world.drive_until_waiting(1, waiting.as_mut()).await;
    let error = one.close_within(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.holders, 1);
    let answer = waiting.await;
    assert!(matches!(answer, Err(AcquireError::Closed)), "{answer:?}");
    let answer = one.try_acquire(fresh_key()).await;
    assert!(matches!(answer, Err(AcquireError::Closed)), "{answer:?}");
    world.settles_to(View::held(1)).await;
    assert!(!guard.is_held());
    drop(guard);
    let closing = tokio::spawn({
        let two = two.clone();
        async move { two.close().await }
    });
    held.release().await.unwrap();
    closing.await.unwrap();
    world.settles_to(View::NOTHING).await;
}
