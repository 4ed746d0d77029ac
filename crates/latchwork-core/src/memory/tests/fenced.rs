//! Fenced locks.

use std::time::Duration;

use crate::{
    HoldState, Key,
    error::{AcquireError, ReleaseError},
    fence::Fence,
    memory::MemoryServer,
    testing::poll,
};

const KEY: Key = Key::bigint(1);
const LONG: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_fenced_lock_excludes_all_others_and_is_free_after_its_release() {
    let server = MemoryServer::new();
    let (one, other) = (server.locks(), server.locks());
    let guard = one.acquire_fenced(KEY).within(LONG).await.unwrap();
    assert!(guard.is_held());
    for locks in [&one, &other] {
        assert!(locks.try_acquire(KEY).await.unwrap().is_none());
        let refused = locks.acquire_fenced(KEY).within(Duration::ZERO).await.unwrap_err();
        assert!(matches!(refused, AcquireError::TimedOut { .. }), "{refused:?}");
    }
    guard.release().await.unwrap();
    let plain = other.try_acquire(KEY).await.unwrap().unwrap();
    drop(one.acquire_fenced(KEY).within(Duration::ZERO).await.unwrap_err());
    drop(plain);
    drop(one.acquire_fenced(KEY).within(LONG).await.unwrap());
    other.acquire(KEY).within(LONG).await.unwrap().release().await.unwrap();
    assert_eq!(server.held(), 0);
}

#[tokio::test]
async fn each_grant_has_a_fence_and_a_greater_term_and_readers_share() {
    let locks = MemoryServer::new().locks();
    let mut before = None;
    for _ in 0..3 {
        let guard = locks.acquire_fenced(KEY).within(LONG).await.unwrap();
        if let Some((fence, term)) = before.replace((guard.fence(), guard.term())) {
            assert!(fence != guard.fence() && term < guard.term());
        }
        guard.release().await.unwrap();
    }
    let one = locks.acquire_fenced(KEY).shared().within(LONG).await.unwrap();
    let two = locks.acquire_fenced(KEY).shared().within(LONG).await.unwrap();
    assert_ne!(one.fence(), two.fence());
    let fence: Fence = one.fence().to_string().parse().unwrap();
    assert_eq!((fence, fence.key(), fence.mode()), (one.fence(), KEY, one.mode()));
}

#[tokio::test]
async fn a_session_that_ends_is_a_loss_told_once_and_its_work_is_dropped() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let guard = locks.acquire_fenced(KEY).within(LONG).await.unwrap();
    let work = guard.run(async {
        server.end_sessions();
        std::future::pending::<()>().await;
    });
    assert_eq!(work.await.unwrap_err().key, KEY);
    guard.lost().await;
    assert_eq!(guard.state(), HoldState::Lost);
    let next = locks.acquire_fenced(KEY).within(LONG).await.unwrap();
    let lost = guard.release().await.unwrap_err();
    assert!(matches!(lost, ReleaseError::Lost { .. }), "{lost:?}");
    assert!(next.is_held());
}

#[tokio::test]
async fn what_is_abandoned_is_not_held_and_closing_waits_for_guards() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let guard = locks.acquire_fenced(KEY).within(LONG).await.unwrap();
    let mut waits = poll(locks.acquire_fenced(KEY).without_limit());
    for _ in 0..5 {
        tokio::task::yield_now().await;
        assert!(waits.is_pending());
    }
    drop(waits);
    let closes = tokio::spawn({
        let locks = locks.clone();
        async move { locks.close().await }
    });
    tokio::task::yield_now().await;
    assert!(!closes.is_finished());
    let refused = locks.acquire_fenced(KEY).within(LONG).await.unwrap_err();
    assert!(matches!(refused, AcquireError::Closed), "{refused:?}");
    drop(guard);
    closes.await.unwrap();
    assert_eq!(server.held(), 0);
}
