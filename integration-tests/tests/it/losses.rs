//! A lock that is lost: by its session's end, its server's, its process's, or that of the network between them.

mod cancels;
mod networks;
mod processes;
mod servers;
mod sessions;

use latchwork_core::{Guard, HoldState, Locks, ReleaseError};

use crate::onlooker::{Onlooker, SOON, eventually};

/// The guard is lost, says so once and for all, and work under it is cancelled.
async fn assert_lost(guard: Guard) {
    tokio::time::timeout(SOON, guard.lost()).await.expect("it resolves");
    assert_eq!(guard.state(), HoldState::Lost);
    assert!(!guard.is_held());
    guard.run(std::future::pending::<()>()).await.unwrap_err();
    let released = guard.release().await;
    assert!(matches!(released, Err(ReleaseError::Lost { .. })), "{released:?}");
}

/// All guards of a process are lost, and each of them once.
async fn assert_lost_once(locks: &Locks, guards: Vec<Guard>) {
    let count = guards.len() as u64;
    for guard in guards {
        assert_lost(guard).await;
    }
    assert_eq!(locks.stats().lost, count);
}

/// After an outage or a loss, and without anybody's help, the engine works as before.
async fn assert_works(locks: &Locks, onlooker: &Onlooker) {
    let guard = locks.acquire("works").within(SOON).await.unwrap();
    let key = guard.key();
    assert!(guard.is_held());
    assert!(onlooker.sees_held(key).await);
    guard.release().await.unwrap();
    eventually("it is released", async || !onlooker.sees_held(key).await).await;
    let guard = locks.try_acquire("works").await.unwrap().expect("it is free");
    guard.release().await.unwrap();
}
