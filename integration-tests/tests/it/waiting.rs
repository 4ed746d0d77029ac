//! How a process waits in the server: for how many keys at once, for how long, and in which order.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use latchwork_core::{Key, Locks, WaitMethod};
use latchwork_harness::Cluster;
use latchwork_postgres::PostgresOptions;
use tokio::task::JoinHandle;

use crate::onlooker::{Onlooker, SOON, assert_quiet, connect, eventually};

/// A cluster that logs what is sent, and a session that holds some keys there.
async fn held_elsewhere(keys: std::ops::Range<i64>) -> (Cluster, Onlooker) {
    let cluster = Cluster::builder().setting("log_statement", "all").start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    for key in keys {
        onlooker.value(&format!("SELECT pg_advisory_lock({key})")).await;
    }
    (cluster, onlooker)
}

fn wait_for(locks: &Locks, key: i64) -> JoinHandle<latchwork_core::Guard> {
    let wait = locks.acquire(Key::bigint(key)).within(SOON * 3);
    tokio::spawn(async move { wait.await.unwrap() })
}

/// The keys below 2^32 that somebody queues for.
async fn queued_keys(onlooker: &Onlooker) -> HashSet<i64> {
    let sql =
        "SELECT coalesce(string_agg(objid::text, ','), '') FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    let keys = onlooker.value(sql).await;
    keys.split(',')
        .filter(|key| !key.is_empty())
        .map(|key| key.parse().unwrap())
        .collect()
}

/// How often a batch has tried keys so far.
fn tries(cluster: &Cluster) -> usize {
    let log = cluster.log();
    log.lines()
        .filter(|line| line.contains("execute") && line.contains("pg_try_advisory_lock"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_waiters_of_one_process_are_one_waiter_in_the_server() {
    let (cluster, onlooker) = held_elsewhere(7..8).await;
    let locks = connect(&cluster.url(), PostgresOptions::default()).await.locks();
    let turns: Vec<_> = (0..1_000)
        .map(|_| {
            let wait = locks.acquire(Key::bigint(7)).within(SOON * 3);
            tokio::spawn(async move {
                let guard = wait.await.unwrap();
                assert!(guard.is_held());
                guard.release().await.unwrap();
            })
        })
        .collect();
    let waiter = onlooker.waiter().await;
    assert_eq!(
        onlooker.sessions("true").await.len(),
        2,
        "the lock session and one that waits"
    );
    let tried = tries(&cluster);
    onlooker.value("SELECT pg_advisory_unlock(7)").await;
    for turn in turns {
        turn.await.unwrap();
    }
    assert!(tries(&cluster) < tried + 100, "they hand it on among themselves");
    eventually("nothing is held", async || onlooker.held().await == 0).await;
    assert!(onlooker.sessions("true").await.contains(&waiter));
    assert_eq!(locks.stats().granted + locks.stats().handed_over, 1_000);
    assert_quiet(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_beyond_the_waiter_sessions_are_polled_and_move_up_when_one_is_free() {
    let (cluster, onlooker) = held_elsewhere(0..6).await;
    let locks = connect(&cluster.url(), PostgresOptions::default().with_waiter_sessions(2))
        .await
        .locks();
    let mut waiting: Vec<_> = (0..6).map(|key| Some(wait_for(&locks, key))).collect();
    eventually("two keys are queued for", async || onlooker.queued().await == 2).await;
    let queued = queued_keys(&onlooker).await;
    let polled: Vec<i64> = (0..6).filter(|key| !queued.contains(key)).collect();

    // One that is polled comes as well, although nobody queues for it.
    let key = polled[0];
    onlooker.value(&format!("SELECT pg_advisory_unlock({key})")).await;
    waiting[key as usize]
        .take()
        .unwrap()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(queued_keys(&onlooker).await, queued, "nobody has moved");

    // A waiter session that is free again takes one that was polled.
    let dropped = *queued.iter().next().unwrap();
    waiting[dropped as usize].take().unwrap().abort();
    eventually("another key is queued for", async || {
        let now = queued_keys(&onlooker).await;
        now.len() == 2 && !now.contains(&dropped)
    })
    .await;
    for key in (0..6).filter(|other| *other != key) {
        onlooker.value(&format!("SELECT pg_advisory_unlock({key})")).await;
    }
    for waiting in waiting.into_iter().flatten() {
        waiting.await.unwrap().release().await.unwrap();
    }
    assert!(onlooker.sessions("true").await.len() <= 3);
    eventually("nothing is held", async || onlooker.held().await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_session_that_has_won_keeps_its_lock_and_waits_for_nothing_else() {
    let (cluster, onlooker) = held_elsewhere(0..2).await;
    let locks = connect(&cluster.url(), PostgresOptions::default().with_waiter_sessions(1))
        .await
        .locks();
    let first = wait_for(&locks, 0);
    let session = onlooker.waiter().await;
    onlooker.value("SELECT pg_advisory_unlock(0)").await;
    let won = first.await.unwrap();
    let second = wait_for(&locks, 1);
    let before = tries(&cluster);
    eventually("the second one polls", async || tries(&cluster) > before + 3).await;
    assert_eq!(onlooker.queued().await, 0);
    won.release().await.unwrap();
    assert_eq!(
        onlooker.waiter().await,
        session,
        "now it queues, on the session that is free again"
    );
    onlooker.value("SELECT pg_advisory_unlock(1)").await;
    second.await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_queued_for_is_not_polled() {
    let (cluster, onlooker) = held_elsewhere(7..8).await;
    let options = PostgresOptions::default()
        .with_poll_interval(Duration::from_millis(5))
        .with_wait_slice(Duration::from_millis(100));
    let locks = connect(&cluster.url(), options).await.locks();
    let waiting = wait_for(&locks, 7);
    onlooker.waiter().await;
    let (tried, slices) = (tries(&cluster), cluster.log().matches("SET LOCAL lock_timeout").count());
    eventually("some slices pass", async || {
        cluster.log().matches("SET LOCAL lock_timeout").count() > slices + 5
    })
    .await;
    assert_eq!(tries(&cluster), tried);
    // A try of our own is answered without a word, and would only find our own waiter in its way.
    assert!(locks.try_acquire(Key::bigint(7)).await.unwrap().is_none());
    assert_eq!(tries(&cluster), tried);
    onlooker.value("SELECT pg_advisory_unlock(7)").await;
    waiting.await.unwrap().release().await.unwrap();
    assert_quiet(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_no_waiter_sessions_all_waiting_is_polling() {
    let (cluster, onlooker) = held_elsewhere(7..8).await;
    let locks = connect(&cluster.url(), PostgresOptions::default().with_waiter_sessions(0))
        .await
        .locks();
    let waiting = wait_for(&locks, 7);
    let before = tries(&cluster);
    eventually("it polls", async || tries(&cluster) > before + 3).await;
    assert_eq!(onlooker.queued().await, 0);
    assert_eq!(onlooker.sessions("true").await.len(), 1);
    onlooker.value("SELECT pg_advisory_unlock(7)").await;
    waiting.await.unwrap().release().await.unwrap();
    assert_quiet(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_dropped_ends_at_once_and_its_session_waits_again() {
    let (cluster, onlooker) = held_elsewhere(7..9).await;
    let locks = connect(&cluster.url(), PostgresOptions::default()).await.locks();
    let mut session = None;
    for round in 0..10 {
        let key = 7 + round % 2;
        let waiting = wait_for(&locks, key);
        let now = onlooker.waiter().await;
        assert_eq!(*session.get_or_insert(now), now, "the same session");
        let begun = Instant::now();
        waiting.abort();
        eventually("nobody waits", async || onlooker.queued().await == 0).await;
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "long before its slice of 5 s ends: {:?}",
            begun.elapsed()
        );
        eventually("the gate has forgotten it", async || locks.stats().keys == 0).await;
        // The session offers itself when it has cleared up.
        let idle = format!(
            "EXISTS (SELECT FROM pg_stat_activity WHERE pid = {now} AND state = 'idle' AND query LIKE '%unlock_all%')"
        );
        eventually("its session has cleared up", async || onlooker.is(&idle).await).await;
    }
    let waiting = wait_for(&locks, 7);
    onlooker.waiter().await;
    onlooker.value("SELECT pg_advisory_unlock_all()").await;
    waiting.await.unwrap().release().await.unwrap();
    eventually("nothing is held", async || onlooker.held().await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_outlives_its_slices_many_times_is_granted_in_the_end() {
    let (cluster, onlooker) = held_elsewhere(7..8).await;
    let options = PostgresOptions::default().with_wait_slice(Duration::from_millis(50));
    let locks = connect(&cluster.url(), options).await.locks();
    let shared = locks.acquire(Key::bigint(7)).shared().within(SOON * 3);
    let shared = tokio::spawn(async move { shared.await.unwrap() });
    eventually("many slices pass", async || {
        cluster.log().matches("SET LOCAL lock_timeout").count() > 20
    })
    .await;
    assert!(!shared.is_finished());
    onlooker.value("SELECT pg_advisory_unlock(7)").await;
    let guard = shared.await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert_quiet(&cluster);
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_queue_are_served_in_the_order_in_which_they_came() {
    let (cluster, onlooker) = held_elsewhere(7..8).await;
    let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
    let mut processes = Vec::new();
    for number in 0..5 {
        // A slice that is longer than the test: a wait that begins anew goes to the tail.
        let options = PostgresOptions::default().with_wait_slice(SOON * 5);
        let postgres = connect(&cluster.url(), options).await;
        let (waiting, order) = (wait_for(&postgres.locks(), 7), order.clone());
        eventually("it stands in line", async || onlooker.queued().await == number + 1).await;
        processes.push(tokio::spawn(async move {
            let guard = waiting.await.unwrap();
            order.send(number).unwrap();
            guard.release().await.unwrap();
            postgres
        }));
    }
    onlooker.value("SELECT pg_advisory_unlock(7)").await;
    for number in 0..5 {
        assert_eq!(served.recv().await, Some(number));
    }
    for process in processes {
        process.await.unwrap().locks().close().await;
    }
    assert_quiet(&cluster);
}

/// Has the key in turn with others of its process, without pause.
async fn hand_over(locks: Locks) {
    loop {
        locks
            .acquire("busy")
            .without_limit()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_hands_a_key_over_without_pause_lets_others_have_their_turn() {
    let cluster = Cluster::start().unwrap();
    let (busy, other) = (
        connect(&cluster.url(), PostgresOptions::default()).await,
        connect(&cluster.url(), PostgresOptions::default()).await,
    );
    let tasks: Vec<_> = (0..8).map(|_| tokio::spawn(hand_over(busy.locks()))).collect();
    for method in [WaitMethod::Queue, WaitMethod::Poll] {
        let mut turns: Vec<Duration> = Vec::new();
        for _ in 0..15 {
            let begun = Instant::now();
            let guard = other
                .locks()
                .acquire("busy")
                .wait_by(method)
                .within(SOON)
                .await
                .unwrap();
            turns.push(begun.elapsed());
            guard.release().await.unwrap();
        }
        turns.sort_unstable();
        let bound = if method == WaitMethod::Queue {
            Duration::from_millis(500)
        } else {
            Duration::from_secs(5)
        };
        assert!(turns[7] < bound, "{method:?}: {turns:?}");
    }
    for task in tasks {
        task.abort();
    }
    let stats = busy.locks().stats();
    assert!(stats.handed_over > stats.granted, "they do hand it over: {stats:?}");
    assert_quiet(&cluster);
}
