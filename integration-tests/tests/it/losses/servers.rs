//! Servers that stop, crash and come back.

use std::time::Duration;

use latchwork_core::AcquireError;
use latchwork_harness::{Cluster, Signal, StopMode};

use super::{assert_lost, assert_works};
use crate::onlooker::{Onlooker, SOON, connect, eventually, majors, quick};

/// Holds and waits while `outage` happens to the server; then everything is lost, and everything works again.
async fn survives(cluster: &Cluster, outage: impl FnOnce(&Cluster)) {
    let (one, other) = (
        connect(&cluster.url(), quick()).await,
        connect(&cluster.url(), quick()).await,
    );
    let onlooker = Onlooker::new(&cluster.url()).await;
    let guard = one.locks().try_acquire("job").await.unwrap().unwrap();
    let reader = one.locks().try_acquire("page").shared().await.unwrap().unwrap();
    let waiting = tokio::spawn(other.locks().acquire("job").within(SOON * 2));
    let waiting_here = tokio::spawn(one.locks().acquire("page").within(SOON * 2));
    onlooker.waiter().await;
    drop(onlooker);

    outage(cluster);

    assert_lost(guard).await;
    assert_lost(reader).await;
    let (waited, waited_here) = (waiting.await.unwrap().unwrap(), waiting_here.await.unwrap().unwrap());
    assert!(waited.is_held() && waited_here.is_held());
    let onlooker = Onlooker::new(&cluster.url()).await;
    assert_eq!(onlooker.held().await, 2);
    waited.release().await.unwrap();
    waited_here.release().await.unwrap();
    assert_works(&one.locks(), &onlooker).await;
    assert_works(&other.locks(), &onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_lose_and_waiters_wait_on_through_a_restart() {
    for mode in [StopMode::Fast, StopMode::Immediate] {
        let cluster = Cluster::start().unwrap();
        survives(&cluster, |cluster| cluster.restart(mode).unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_lose_and_waiters_wait_on_through_the_death_of_the_whole_server() {
    let cluster = Cluster::start().unwrap();
    survives(&cluster, |cluster| {
        cluster.kill_server().unwrap();
        cluster.restart(StopMode::Fast).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_lose_and_waiters_wait_on_through_a_crash_that_the_server_recovers_from() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        // An innocent backend, whose death makes the server end all others.
        let victim = Onlooker::new(&cluster.url()).await;
        let pid = victim.pid().await;
        survives(&cluster, |cluster| cluster.signal_backend(pid, Signal::KILL).unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_is_an_outage_and_never_contention() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick()).await;
    let locks = postgres.locks();
    let slots = locks.slots("pool", 1).unwrap();
    let guard = locks.try_acquire("held").await.unwrap().unwrap();
    cluster.stop(StopMode::Immediate).unwrap();
    assert_lost(guard).await;
    for _ in 0..20 {
        for key in ["held", "free"] {
            let error = locks.try_acquire(key).await.expect_err("nobody knows");
            assert!(error.is_outage(), "{error:?}");
            let limited = locks
                .acquire(key)
                .within(Duration::from_millis(20))
                .await
                .expect_err("nobody knows");
            assert!(
                limited.is_outage() && !matches!(limited, AcquireError::TimedOut { .. }),
                "{limited:?}"
            );
        }
        let error = slots.try_acquire().await.expect_err("nobody knows");
        assert!(error.is_outage(), "{error:?}");
    }
    let patient = tokio::spawn(locks.acquire("held").within(SOON * 2));
    cluster.restart(StopMode::Fast).unwrap();
    patient.await.unwrap().unwrap().release().await.unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    eventually("tries work again", async || {
        locks.try_acquire("free").await.is_ok_and(|guard| guard.is_some())
    })
    .await;
    assert_works(&locks, &onlooker).await;
    assert!(slots.try_acquire().await.unwrap().is_some());
}
