//! Lock tables that are full, the server's and our own share of it.

use std::error::Error;

use latchwork_core::{AcquireError, Guard, Key, Locks};
use latchwork_harness::Cluster;

use crate::onlooker::{Onlooker, SOON, assert_quiet, chain, connect, eventually, quick};

/// A server with room for few locks: 200 by its settings, and some more that PostgreSQL does not promise.
fn small() -> Cluster {
    Cluster::builder()
        .setting("max_locks_per_transaction", 10)
        .setting("max_connections", 20)
        .start()
        .unwrap()
}

/// Fills the server's lock table to the brim.
async fn fill(crowd: &Onlooker) {
    for chunk in [1_000, 1] {
        let mut next = crowd
            .number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
            .await
            + 1_000_000;
        // An error leaves what was taken before it.
        while crowd
            .0
            .simple_query(&format!(
                "SELECT pg_advisory_lock(g) FROM generate_series({next}, {next} + {chunk}) g"
            ))
            .await
            .is_ok()
        {
            next += chunk + 1;
        }
    }
}

/// The server's lock table is full, and the text says so.
fn assert_full(error: &AcquireError) {
    assert!(
        matches!(error, AcquireError::CapacityExceeded { .. }) && !error.is_outage(),
        "{error:?}"
    );
    let advice = "hold fewer locks, or raise max_locks_per_transaction and restart the server";
    assert!(chain(error).contains(advice), "{}", chain(error));
}

/// Tries many keys at once. Whatever is granted is ours, and nothing else.
async fn try_many(locks: &Locks, count: i64) -> (Vec<Guard>, usize) {
    let tries: Vec<_> = (0..count)
        .map(|key| tokio::spawn(locks.try_acquire(Key::bigint(key))))
        .collect();
    let (mut guards, mut refused) = (Vec::new(), 0);
    for tried in tries {
        match tried.await.unwrap() {
            Ok(guard) => guards.push(guard.expect("nobody else holds it")),
            Err(error) => {
                assert_full(&error);
                refused += 1;
            }
        }
    }
    (guards, refused)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_lock_table_fails_what_has_no_room_and_loses_nothing_that_is_held() {
    let cluster = small();
    let options = quick().with_max_locks(100_000);
    let (locks, waits) = (
        connect(&cluster.url(), options.clone()).await.locks(),
        connect(&cluster.url(), options).await.locks(),
    );
    let (onlooker, crowd) = (Onlooker::new(&cluster.url()).await, Onlooker::new(&cluster.url()).await);
    let kept = locks.try_acquire("kept").await.unwrap().unwrap();
    let session = onlooker.holder().await;
    let ours = async || {
        onlooker
            .number(&format!(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = {session}"
            ))
            .await
    };
    // A waiter session of its own, as long as one can be opened.
    let waiting = tokio::spawn(waits.acquire("kept").within(SOON));
    onlooker.waiter().await;
    waiting.abort();
    eventually("nobody waits", async || onlooker.queued().await == 0).await;
    fill(&crowd).await;

    let (none, refused) = try_many(&locks, 40).await;
    assert_eq!((none.len(), refused), (0, 40));
    assert_full(
        &locks
            .slots("pool", 3)
            .unwrap()
            .try_acquire()
            .await
            .map(drop)
            .unwrap_err(),
    );
    // To queue for a key takes room in the table too, as long as nobody else has it there.
    let error = waits.acquire("wanted").within(SOON).await.map(drop).unwrap_err();
    assert_full(&error);
    assert_eq!(ours().await, 1);

    // A batch that fails half-way has taken some, and they are handed out.
    for key in 0..7 {
        let freed = format!("SELECT pg_advisory_unlock({})", 1_000_050 + key);
        assert_eq!(crowd.value(&freed).await, "t");
    }
    let (some, refused) = try_many(&locks, 40).await;
    assert!(
        !some.is_empty() && refused > 0,
        "{} granted, {refused} refused",
        some.len()
    );
    assert_eq!(ours().await, 1 + some.len() as i64);
    for guard in some {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
    assert_eq!(ours().await, 1);

    crowd.value("SELECT pg_advisory_unlock_all()").await;
    let (all, refused) = try_many(&locks, 40).await;
    assert_eq!((all.len(), refused), (40, 0));
    drop(all);
    assert!(kept.is_held(), "through all of this");
    assert_eq!(locks.stats().lost, 0);
    assert_eq!(onlooker.holder().await, session);
    kept.release().await.unwrap();
    eventually("nothing is held", async || ours().await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_stops_at_a_quarter_of_the_table_before_the_server_is_in_need() {
    let cluster = small();
    let postgres = connect(&cluster.url(), quick()).await;
    assert_eq!(postgres.server().unwrap().lock_capacity, 200);
    let locks = postgres.locks();
    let mut guards = Vec::new();
    for key in 0..50 {
        guards.push(locks.try_acquire(Key::bigint(key)).await.unwrap().unwrap());
    }
    assert_at_limit(&locks, 50).await;
    guards.pop().unwrap().release().await.unwrap();
    let last = locks.try_acquire("last").await.unwrap().expect("there is room for one");
    assert_at_limit(&locks, 50).await;
    drop((guards, last));
    let onlooker = Onlooker::new(&cluster.url()).await;
    eventually("nothing is held", async || onlooker.held().await == 0).await;
    assert_quiet(&cluster);
}

/// Whatever is asked for is one too many.
async fn assert_at_limit(locks: &Locks, held: usize) {
    let pool = locks.slots("pool", 3).unwrap();
    let errors = [
        locks.try_acquire("more").await.map(drop).unwrap_err(),
        locks.acquire("more").within(SOON).await.map(drop).unwrap_err(),
        locks
            .acquire("more")
            .shared()
            .without_limit()
            .await
            .map(drop)
            .unwrap_err(),
        pool.try_acquire().await.map(drop).unwrap_err(),
        pool.acquire().within(SOON).await.map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(
            matches!(error, AcquireError::CapacityExceeded { .. }) && !error.is_outage(),
            "{error:?}"
        );
        let text = chain(&error);
        assert!(
            text.contains(&format!("this process holds {held} locks")) && text.contains("set max_locks"),
            "{text}"
        );
        let cause = error.source().unwrap().source();
        assert!(cause.is_none(), "our own limit has no cause on the server: {cause:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_our_own_counts_waiters_and_slots_and_may_be_nothing_at_all() {
    let cluster = Cluster::start().unwrap();
    let none = connect(&cluster.url(), quick().with_max_locks(0)).await.locks();
    assert_at_limit(&none, 0).await;

    // Two: a lock, and what the waiter wins.
    let (locks, other) = (
        connect(&cluster.url(), quick().with_max_locks(2)).await.locks(),
        connect(&cluster.url(), quick()).await.locks(),
    );
    let onlooker = Onlooker::new(&cluster.url()).await;
    let theirs = other.try_acquire("theirs").await.unwrap().unwrap();
    let ours = locks.try_acquire("ours").await.unwrap().unwrap();
    let waiting = tokio::spawn(locks.acquire("theirs").within(SOON));
    onlooker.waiter().await;
    theirs.release().await.unwrap();
    let won = waiting.await.unwrap().unwrap();
    assert_at_limit(&locks, 2).await;
    won.release().await.unwrap();
    drop(ours);
    let again = locks.acquire("theirs").within(SOON).await.unwrap();
    eventually("there is room again", async || {
        locks.try_acquire("more").await.is_ok_and(|guard| guard.is_some())
    })
    .await;
    drop(again);
    eventually("nothing is held", async || onlooker.held().await == 0).await;
}
