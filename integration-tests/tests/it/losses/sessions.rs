//! Sessions that the server ends.

use std::time::{Duration, Instant};

use latchwork_core::HoldState;
use latchwork_harness::Cluster;
use latchwork_postgres::PostgresOptions;

use super::{assert_lost, assert_lost_once, assert_works};
use crate::onlooker::{Onlooker, SOON, assert_quiet, connect, eventually, quick};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_lock_session_loses_all_its_locks_at_once_and_a_new_one_takes_them_again() {
    let cluster = Cluster::start().unwrap();
    // So long that only the end of the stream can be what is noticed.
    let postgres = connect(&cluster.url(), PostgresOptions::default()).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = postgres.locks();
    let mut guards = Vec::new();
    for number in 0..500 {
        guards.push(locks.try_acquire(["row", &number.to_string()]).await.unwrap().unwrap());
    }
    onlooker.terminate(onlooker.holder().await).await;
    assert_lost_once(&locks, guards).await;
    assert_eq!(locks.stats().keys, 0);
    let mut again = Vec::new();
    for number in 0..500 {
        again.push(locks.acquire(["row", &number.to_string()]).within(SOON).await.unwrap());
    }
    assert_eq!(onlooker.held().await, 500);
    for guard in again {
        guard.release().await.unwrap();
    }
    assert_works(&locks, &onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_guard_does_nothing_to_the_lock_of_a_new_one() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick()).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = postgres.locks();
    let (old, older) = (
        locks.try_acquire("job").await.unwrap().unwrap(),
        locks.try_acquire("other").await.unwrap().unwrap(),
    );
    onlooker.terminate(onlooker.holder().await).await;
    old.lost().await;
    let new = locks.acquire("job").within(SOON).await.unwrap();
    let newer = locks.acquire("other").within(SOON).await.unwrap();
    drop(old);
    older.release().await.unwrap_err();
    assert_works(&locks, &onlooker).await;
    assert!(new.is_held() && newer.is_held());
    assert_eq!(onlooker.held().await, 2);
    new.release().await.unwrap();
    newer.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_outlives_the_session_that_it_stands_in_line_with() {
    let cluster = Cluster::start().unwrap();
    let (one, other) = (
        connect(&cluster.url(), quick()).await,
        connect(&cluster.url(), quick()).await,
    );
    let onlooker = Onlooker::new(&cluster.url()).await;
    let guard = one.locks().try_acquire("job").await.unwrap().unwrap();
    let waiting = tokio::spawn(other.locks().acquire("job").within(SOON));
    for _ in 0..3 {
        let pid = onlooker.waiter().await;
        onlooker.terminate(pid).await;
        eventually("another session waits", async || {
            onlooker
                .is(&format!(
                    "EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND pid <> {pid})"
                ))
                .await
        })
        .await;
    }
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    eventually("nothing is held", async || onlooker.held().await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_waiter_session_loses_the_one_lock_that_it_won_and_no_other() {
    let cluster = Cluster::start().unwrap();
    let (one, other) = (
        connect(&cluster.url(), quick()).await,
        connect(&cluster.url(), quick()).await,
    );
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = other.locks();
    let kept = locks.try_acquire("kept").await.unwrap().unwrap();
    let guard = one.locks().try_acquire("job").await.unwrap().unwrap();
    let waiting = tokio::spawn(locks.acquire("job").within(SOON));
    let pid = onlooker.waiter().await;
    guard.release().await.unwrap();
    let won = waiting.await.unwrap().unwrap();
    onlooker.terminate(pid).await;
    assert_lost_once(&locks, vec![won]).await;
    assert!(kept.is_held());
    assert_works(&locks, &onlooker).await;
    kept.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_and_their_waiters_outlive_a_lost_session() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick()).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    let slots = postgres.locks().slots("pool", 2).unwrap();
    let permits = [
        slots.try_acquire().await.unwrap().unwrap(),
        slots.try_acquire().await.unwrap().unwrap(),
    ];
    let waiting = tokio::spawn(slots.acquire().within(SOON));
    onlooker.terminate(onlooker.holder().await).await;
    for permit in permits {
        permit.lost().await;
        assert!(!permit.is_held());
        permit.release().await.unwrap_err();
    }
    let permit = waiting.await.unwrap().unwrap();
    assert!(permit.is_held());
    permit.release().await.unwrap();
    drop(slots);
    eventually("nothing is held, not even the pool's marker", async || {
        onlooker.held().await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_session_can_neither_release_nor_clear_what_we_hold() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick()).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    let guard = postgres
        .locks()
        .try_acquire(latchwork_core::Key::bigint(7))
        .await
        .unwrap()
        .unwrap();
    assert_quiet(&cluster);
    onlooker.value("SELECT pg_advisory_unlock_all()").await;
    assert!(!onlooker.is("pg_advisory_unlock(7)").await);
    assert_eq!(onlooker.held().await, 1);
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_finds_nothing_to_release_is_a_loss_of_the_whole_session() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), PostgresOptions::default()).await;
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = postgres.locks();
    let (one, other) = (
        locks.try_acquire("one").await.unwrap().unwrap(),
        locks.try_acquire("other").await.unwrap().unwrap(),
    );
    let pid = onlooker.holder().await;
    // A function that lies: there is no honest way to have a session of ours not hold what it was granted.
    let lie = "CREATE OR REPLACE FUNCTION pg_catalog.pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE sql \
         VOLATILE AS 'SELECT false'";
    onlooker
        .value(&format!("SET allow_system_table_mods = on; {lie}"))
        .await;
    one.release().await.unwrap_err();
    assert_lost(other).await;
    eventually("the session is gone", async || {
        onlooker
            .is(&format!("NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})"))
            .await
    })
    .await;
    assert_eq!(onlooker.held().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_do_nothing_keep_their_locks_on_every_kind_of_session() {
    let cluster = Cluster::start().unwrap();
    let (one, other) = (
        connect(&cluster.url(), quick().with_locks_per_session(2)).await,
        connect(&cluster.url(), quick()).await,
    );
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = one.locks();
    // Two on the first session, one on a further one, one on a waiter session, and a slot with its marker.
    let mut guards = Vec::new();
    for name in ["first", "second", "further"] {
        guards.push(locks.try_acquire(name).await.unwrap().unwrap());
    }
    let theirs = other.locks().try_acquire("waited for").await.unwrap().unwrap();
    let waiting = tokio::spawn(locks.acquire("waited for").within(SOON));
    onlooker.waiter().await;
    theirs.release().await.unwrap();
    guards.push(waiting.await.unwrap().unwrap());
    let pool = locks.slots("pool", 1).unwrap();
    let permit = pool.try_acquire().await.unwrap().unwrap();
    let homes = "SELECT string_agg(DISTINCT pid::text, ',') FROM pg_locks WHERE locktype = 'advisory' AND granted";
    let (before, held) = (onlooker.value(homes).await, onlooker.held().await);
    assert!(before.split(',').count() >= 3, "{before}");

    // For three times as long as the server keeps a session that says nothing.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_250 * 3) {
        for guard in &guards {
            assert!(guard.is_held(), "{:?} after {:?}", guard.state(), begun.elapsed());
        }
        assert!(permit.is_held(), "after {:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        (onlooker.value(homes).await, onlooker.held().await),
        (before, held),
        "pings acquire nothing, and end no session"
    );
    assert_eq!(locks.stats().lost, 0);
    // Had a ping taken a lock once more, one release would not free it.
    for guard in guards {
        guard.release().await.unwrap();
    }
    permit.release().await.unwrap();
    drop(pool);
    eventually("nothing is held", async || onlooker.held().await == 0).await;
    assert_quiet(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_finds_nothing_on_a_waiter_session_is_its_loss_and_not_that_of_others() {
    let cluster = Cluster::start().unwrap();
    let (one, other) = (
        connect(&cluster.url(), PostgresOptions::default()).await,
        connect(&cluster.url(), PostgresOptions::default()).await,
    );
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = other.locks();
    let kept = locks.try_acquire("kept").await.unwrap().unwrap();
    let theirs = one.locks().try_acquire("job").await.unwrap().unwrap();
    let waiting = tokio::spawn(locks.acquire("job").within(SOON));
    let pid = onlooker.waiter().await;
    theirs.release().await.unwrap();
    let won = waiting.await.unwrap().unwrap();
    // The same lie as above.
    let lie = "CREATE OR REPLACE FUNCTION pg_catalog.pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE sql \
         VOLATILE AS 'SELECT false'";
    onlooker
        .value(&format!("SET allow_system_table_mods = on; {lie}"))
        .await;
    won.release().await.unwrap_err();
    eventually("the session is gone, and its lock with it", async || {
        onlooker
            .is(&format!("NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {pid})"))
            .await
    })
    .await;
    assert!(kept.is_held(), "on a session that has told no lie yet");
    assert_eq!(onlooker.held().await, 1);
    assert!(
        one.locks().try_acquire("job").await.unwrap().is_some(),
        "it is free for others"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_outlives_the_runtime_of_its_session_is_lost_with_it() {
    let cluster = Cluster::start().unwrap();
    let url = cluster.url();
    let other = connect(&url, quick()).await;
    for is_fenced in [false, true] {
        let url = url.clone();
        // With limits in which it would be believed in for longer than this takes.
        let ended = move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let (postgres, guard, fenced) = runtime.block_on(async {
                let postgres = connect(&url, PostgresOptions::default()).await;
                let locks = postgres.locks();
                if is_fenced {
                    let fenced = locks.acquire_fenced("job").without_limit().await.unwrap();
                    return (postgres, None, Some(fenced));
                }
                (postgres, locks.try_acquire("job").await.unwrap(), None)
            });
            drop(runtime);
            assert!(guard.as_ref().is_none_or(|guard| guard.state() == HoldState::Lost));
            assert!(fenced.as_ref().is_none_or(|guard| guard.state() == HoldState::Lost));
            (postgres, guard, fenced)
        };
        let kept = std::thread::spawn(ended).join().unwrap();
        let next = other.locks().acquire("job").within(SOON).await.unwrap();
        next.release().await.unwrap();
        drop(kept);
    }
}
