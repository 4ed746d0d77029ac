//! `pg_cancel_backend` aimed at our sessions, by somebody who means well or ill.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use latchwork_core::{AcquireError, Locks};
use latchwork_harness::Cluster;
use latchwork_postgres::PostgresOptions;

use super::assert_works;
use crate::onlooker::{Onlooker, SOON, connect, eventually};

/// Acquires and releases until told to stop. Counts the acquires that were answered with an error.
async fn load(locks: Locks, number: usize, stop: Arc<AtomicBool>, failed: Arc<AtomicU32>) {
    while !stop.load(Ordering::Relaxed) {
        // A hand-over or a refusal inside the process is ready at once.
        tokio::task::yield_now().await;
        let key = ["load", &(number % 16).to_string()];
        let slots = locks.slots("pool", 3).unwrap();
        match number % 4 {
            0 => answered(locks.acquire(key).within(SOON).await.map(drop), &failed),
            1 => match locks.try_acquire(key).await {
                Ok(Some(guard)) => guard.release().await.expect("what was granted is there to be released"),
                Ok(None) => {}
                Err(error) => answered(Err(error), &failed),
            },
            2 => answered(locks.try_acquire(key).shared().await.map(drop), &failed),
            _ => answered(slots.try_acquire().await.map(drop), &failed),
        }
    }
}

/// A request that was cancelled on the server may say so; it may not be taken for an outage.
fn answered(answer: Result<(), AcquireError>, failed: &AtomicU32) {
    if let Err(error) = answer {
        assert!(matches!(error, AcquireError::Backend { .. }), "{error:?}");
        failed.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancels_aimed_at_the_lock_session_lose_nothing_and_leak_nothing() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), PostgresOptions::default()).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = postgres.locks();
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(locks.try_acquire(["kept", &number.to_string()]).await.unwrap().unwrap());
    }
    let pid = onlooker.holder().await;
    let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let loads: Vec<_> = (0..64)
        .map(|number| tokio::spawn(load(locks.clone(), number, Arc::clone(&stop), Arc::clone(&failed))))
        .collect();
    for _ in 0..1_500 {
        let pause = fastrand::f64() * 0.0004;
        onlooker
            .value(&format!("SELECT pg_sleep({pause}); SELECT pg_cancel_backend({pid})"))
            .await;
    }
    stop.store(true, Ordering::Relaxed);
    for load in loads {
        load.await.unwrap();
    }
    println!("{} requests were cancelled", failed.load(Ordering::Relaxed));
    assert!(failed.load(Ordering::Relaxed) > 0, "no cancel ever came in time");
    assert!(guards.iter().all(latchwork_core::Guard::is_held));
    assert_eq!(locks.stats().lost, 0);
    assert_eq!(
        onlooker
            .sessions("pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')")
            .await,
        [pid]
    );
    eventually("only the guards are held", async || onlooker.held().await == 50).await;
    for guard in guards {
        guard.release().await.unwrap();
    }
    eventually("nothing is held", async || onlooker.held().await == 0).await;
    assert_works(&locks, &onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_wait_says_so_and_its_session_waits_again() {
    let cluster = Cluster::start().unwrap();
    let (one, other) = (
        connect(&cluster.url(), PostgresOptions::default()).await,
        connect(&cluster.url(), PostgresOptions::default()).await,
    );
    let onlooker = Onlooker::new(&cluster.url()).await;
    let guard = one.locks().try_acquire("job").await.unwrap().unwrap();
    let waiting = tokio::spawn(other.locks().acquire("job").within(SOON));
    let pid = onlooker.waiter().await;
    assert!(onlooker.is(&format!("pg_cancel_backend({pid})")).await);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::Backend { .. }), "{error:?}");
    assert!(
        crate::onlooker::chain(&error).contains("somebody has cancelled"),
        "{error:?}"
    );
    let waiting = tokio::spawn(other.locks().acquire("job").within(SOON));
    assert_eq!(onlooker.waiter().await, pid, "the same session");
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    eventually("nothing is held", async || onlooker.held().await == 0).await;
}
