use std::time::Duration;

use tokio::task::JoinSet;

use super::nothing_is_left;
use crate::{
    AcquireError, HoldState, ReleaseError,
    memory::MemoryServer,
    testing::{Polled, poll},
};

#[tokio::test]
async fn the_end_of_the_sessions_is_told_to_every_guard_and_permit() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let guard = locks.try_acquire("job").await.unwrap().unwrap();
    let reader = locks.try_acquire("report").shared().await.unwrap().unwrap();
    let permit = locks.slots("pool", 2).unwrap().try_acquire().await.unwrap().unwrap();
    let mut lost = [poll(guard.lost()), poll(reader.lost())];
    let mut lost_permit = poll(permit.lost());
    server.end_sessions();
    lost.iter_mut().for_each(Polled::ready);
    lost_permit.ready();
    assert!(!guard.is_held() && !reader.is_held() && !permit.is_held());
    assert_eq!((guard.state(), permit.state()), (HoldState::Lost, HoldState::Lost));
    assert_eq!(locks.stats().holders, 0);
    nothing_is_left(&server);
}

#[tokio::test]
async fn work_is_cancelled_by_the_end_of_the_sessions() {
    let server = MemoryServer::new();
    let guard = server.locks().try_acquire("job").await.unwrap().unwrap();
    let mut work = poll(guard.run(std::future::pending::<()>()));
    server.end_sessions();
    assert_eq!(work.ready().unwrap_err().key, guard.key());
}

#[tokio::test]
async fn the_release_of_a_lost_guard_says_so_and_does_not_free_the_next_holders_lock() {
    for here in [true, false] {
        let server = MemoryServer::new();
        let locks = server.locks();
        let next = if here { locks.clone() } else { server.locks() };
        let lost = locks.try_acquire("job").await.unwrap().unwrap();
        let also_lost = locks.slots("pool", 1).unwrap().try_acquire().await.unwrap().unwrap();
        server.end_sessions();
        let guard = next.try_acquire("job").await.unwrap().unwrap();
        let permit = next.slots("pool", 1).unwrap().try_acquire().await.unwrap().unwrap();
        assert!(matches!(lost.release().await, Err(ReleaseError::Lost { key }) if key == guard.key()));
        assert!(matches!(also_lost.release().await, Err(ReleaseError::Lost { .. })));
        assert!(guard.is_held() && permit.is_held());
        assert!(server.locks().try_acquire("job").await.unwrap().is_none());
        guard.release().await.unwrap();
        permit.release().await.unwrap();
        nothing_is_left(&server);
    }
}

#[tokio::test]
async fn a_lost_guard_that_is_dropped_does_not_free_the_next_holders_lock() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let lost = locks.try_acquire("job").await.unwrap().unwrap();
    server.end_sessions();
    let next = locks.try_acquire("job").await.unwrap().unwrap();
    drop(lost);
    assert!(next.is_held());
    assert!(server.locks().try_acquire("job").await.unwrap().is_none());
}

#[tokio::test]
async fn a_release_is_final() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let guard = locks.try_acquire("job").await.unwrap().unwrap();
    // The future that tells of it outlives the next holder.
    let released = guard.release();
    let next = server.locks().try_acquire("job").await.unwrap().unwrap();
    released.await.unwrap();
    assert!(next.is_held());
    assert_eq!(server.held(), 1);
    drop(next);
    nothing_is_left(&server);
}

#[tokio::test]
async fn those_who_wait_have_the_key_after_the_sessions_ended() {
    let server = MemoryServer::new();
    let (one, other) = (server.locks(), server.locks());
    let holder = one.try_acquire("job").await.unwrap().unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let locks = if number % 2 == 0 { &one } else { &other };
        let acquire = locks.acquire("job").within(Duration::from_secs(60));
        tasks.spawn(async move { acquire.await.unwrap().release().await });
    }
    while server.queued() == 0 {
        tokio::task::yield_now().await;
    }
    server.end_sessions();
    for result in tasks.join_all().await {
        result.unwrap();
    }
    drop(holder);
    nothing_is_left(&server);
}

#[tokio::test]
async fn those_who_wait_for_a_slot_have_one_after_the_sessions_ended() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let pool = locks.slots("pool", 2).unwrap();
    let _first = pool.try_acquire().await.unwrap().unwrap();
    let _second = pool.try_acquire().await.unwrap().unwrap();
    let wait = tokio::spawn(pool.acquire().within(Duration::from_secs(60)));
    while locks.stats().holders < 2 || locks.stats().denied == 0 {
        assert!(pool.try_acquire().await.unwrap().is_none());
        tokio::task::yield_now().await;
    }
    server.end_sessions();
    let permit = wait.await.unwrap().unwrap();
    assert!(permit.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_has_gone_holds_nothing_any_more() {
    let server = MemoryServer::new();
    let gone = server.locks();
    gone.try_acquire("job").await.unwrap().unwrap().leak();
    gone.slots("pool", 1)
        .unwrap()
        .try_acquire()
        .await
        .unwrap()
        .unwrap()
        .leak();
    let stays = server.locks();
    let mut wait = poll(stays.acquire("job").without_limit());
    drop(gone);
    drop(wait.ready().unwrap());
    nothing_is_left(&server);
}

#[tokio::test]
async fn closed_locks_hold_nothing_and_refuse() {
    let server = MemoryServer::new();
    let locks = server.locks();
    drop(locks.try_acquire("job").await.unwrap().unwrap());
    let pool = locks.slots("pool", 1).unwrap();
    drop(pool.try_acquire().await.unwrap().unwrap());
    locks.close().await;
    locks.close().await;
    nothing_is_left(&server);
    assert!(matches!(locks.try_acquire("job").await, Err(AcquireError::Closed)));
    assert!(matches!(pool.try_acquire().await, Err(AcquireError::Closed)));
    assert!(server.locks().try_acquire("job").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn locks_that_were_closed_within_a_limit_are_lost_and_free_for_others() {
    let server = MemoryServer::new();
    let (locks, other) = (server.locks(), server.locks());
    let guard = locks.try_acquire("job").await.unwrap().unwrap();
    let permit = locks.slots("pool", 1).unwrap().try_acquire().await.unwrap().unwrap();
    let mut wait = poll(other.acquire("job").without_limit());
    let error = locks.close_within(Duration::from_secs(5)).await.unwrap_err();
    assert_eq!(error.holders, 2);
    assert!(!guard.is_held() && !permit.is_held());
    let theirs = wait.ready().unwrap();
    assert!(matches!(
        Polled::new(guard.release()).ready(),
        Err(ReleaseError::Lost { .. })
    ));
    assert!(theirs.is_held());
    drop((theirs, permit));
    nothing_is_left(&server);
}
