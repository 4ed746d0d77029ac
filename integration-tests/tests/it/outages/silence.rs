//! Servers that take connections, and say nothing.

use std::time::{Duration, Instant};

use latchwork_core::Locks;
use latchwork_harness::{Cluster, Proxy};
use latchwork_postgres::{Config, Postgres};

use crate::onlooker::{Onlooker, SOON, chain, connect, eventually, quick, within};

/// The ping limit of `quick`: an answer that takes longer is none.
const LIMIT: Duration = Duration::from_millis(500);
const SLACK: Duration = Duration::from_millis(500);

/// A try fails within the time that an answer may take, as an outage.
async fn assert_silence_is_told(locks: &Locks, key: &str) {
    let begun = Instant::now();
    let error = locks.try_acquire(key).await.map(drop).expect_err("nobody knows");
    assert!(begun.elapsed() < LIMIT + SLACK, "{:?}", begun.elapsed());
    assert!(error.is_outage(), "{error:?}");
    assert!(chain(&error).contains("has not answered for"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_silent_is_an_outage_within_the_ping_limit_at_every_moment_from_then_on() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let locks = connect(&proxy.url(), quick()).await.locks();
    let onlooker = Onlooker::new(&cluster.url()).await;
    onlooker.value("SELECT pg_advisory_lock(7)").await;
    let slots = locks.slots("pool", 1).unwrap();
    slots.try_acquire().await.unwrap().unwrap().release().await.unwrap();
    proxy.freeze();
    // Through the silence, the end of the session, and the attempts to connect that follow it.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(7) {
        assert_silence_is_told(&locks, "job").await;
        let begun = Instant::now();
        let error = slots.try_acquire().await.map(drop).expect_err("nobody knows");
        assert!(
            error.is_outage() && begun.elapsed() < LIMIT + SLACK,
            "{error:?} {:?}",
            begun.elapsed()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let patient = tokio::spawn(locks.acquire("job").within(SOON));
    proxy.thaw();
    patient.await.unwrap().unwrap().release().await.unwrap();
    eventually("it answers again", async || {
        locks.try_acquire("job").await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_freezes_with_a_batch_on_the_wire_suspends_what_is_held_within_the_limit_at_every_moment() {
    const LATE: Duration = Duration::from_millis(200);
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let locks = connect(&proxy.url(), quick()).await.locks();
    let guard = locks.acquire("held").within(SOON).await.unwrap();
    // The times limits are looked at, and pings sent, lie anywhere within these moments.
    for moment in 0..12 {
        let warm = locks.try_acquire("warm").await.unwrap().unwrap();
        warm.release().await.unwrap();
        tokio::time::sleep(Duration::from_millis(23) * moment).await;
        proxy.freeze_answers();
        let begun = Instant::now();
        let batches = ["first", "second"].map(|key| tokio::spawn(locks.try_acquire(key)));
        for batch in batches {
            let error = batch.await.unwrap().map(drop).expect_err("nobody answers");
            assert!(error.is_outage(), "{moment}: {error:?}");
        }
        assert!(begun.elapsed() < LIMIT + LATE, "{moment}: {:?}", begun.elapsed());
        assert!(!guard.is_held(), "{moment}: suspended with it");
        proxy.thaw();
        eventually("it believes again", async || guard.is_held()).await;
    }
    assert_eq!(locks.stats().lost, 0);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_silent_from_the_start_is_an_outage_within_the_ping_limit() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    proxy.freeze();
    let locks = Postgres::connect_in_background(proxy.url().parse::<Config>().unwrap(), quick()).locks();
    for _ in 0..3 {
        assert_silence_is_told(&locks, "job").await;
    }
    proxy.thaw();
    eventually("it answers", async || {
        locks.try_acquire("job").await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_shorter_than_the_ping_limit_does_not_make_silence_contention() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let locks = connect(&proxy.url(), quick()).await.locks();
    let limit = LIMIT * 3 / 4;
    proxy.freeze();
    let error = locks.acquire("free").within(limit).await.map(drop).unwrap_err();
    assert!(error.is_outage(), "nobody holds it: {error:?}");
    proxy.thaw();
    // Behind a holder it is contention.
    let onlooker = Onlooker::new(&cluster.url()).await;
    onlooker.value("SELECT pg_advisory_lock(7)").await;
    within(SOON, "it answers again", async || {
        let busy = locks.acquire(latchwork_core::Key::bigint(7)).within(limit).await;
        busy.is_err_and(|error| error.is_timeout())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_does_not_wait_for_a_silent_server_for_ever() {
    let cluster = Cluster::start().unwrap();
    let proxy = Proxy::start(cluster.endpoint()).unwrap();
    let locks = connect(&proxy.url(), quick()).await.locks();
    let guard = locks.try_acquire("job").await.unwrap().unwrap();
    proxy.freeze();
    let begun = Instant::now();
    drop(guard);
    locks.close().await;
    // The session's silence, and an attempt to connect that may be under way.
    assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
}
