//! How a wait ends other than by a grant: its limit, its caller, the server, the network.

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, Pool};
use latchwork_core::xact::{LockedError, XactOptions};
use latchwork_harness::wait_until;
use latchwork_postgres::transaction::{LockedTransactionExt as _, XactLockExt as _};
use tokio::time::timeout;
use tokio_postgres::{Error, NoTls};

use super::{CLUSTER, LONG, SOON, becomes, client, fresh_key, is_usable, seen};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_tiny_limits_on_a_busy_key_leave_nothing_behind() {
    let key = fresh_key();
    let mut workers = Vec::new();
    for worker in 0..4_u32 {
        workers.push(tokio::spawn(async move {
            let mut client = client(&CLUSTER.url()).await;
            let mut granted = 0;
            for round in 0..600_u32 {
                let transaction = client.transaction().await.unwrap();
                let limit = Duration::from_micros([0, 1, 400, 1000, 1900][((worker + round) % 5) as usize]);
                match transaction.xact_lock(key).within(limit).await {
                    Ok(()) => {
                        granted += 1;
                        transaction.batch_execute("SELECT pg_sleep(0.0008)").await.unwrap();
                    }
                    Err(error) => {
                        assert!(error.is_timeout(), "{error:?}");
                        // The server agrees that this transaction has nothing.
                        let held = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
                        assert_eq!(transaction.query(held, &[]).await.unwrap().len(), 0);
                    }
                }
                transaction.commit().await.unwrap();
            }
            granted
        }));
    }
    let mut granted = 0;
    for worker in workers {
        granted += worker.await.unwrap();
    }
    assert!((1..2400).contains(&granted), "{granted}");
    assert_eq!(seen(&CLUSTER, key), (0, 0));
}

#[tokio::test]
async fn dropped_at_any_poll_nothing_stays_held_and_nothing_keeps_waiting() {
    let (mut holder, mut other) = (client(&CLUSTER.url()).await, client(&CLUSTER.url()).await);
    // A wait that stays busy costs a slice in each round.
    for (busy, rounds) in [(false, 40), (true, 8)] {
        for polls in 0..rounds {
            let key = fresh_key();
            let first = holder.transaction().await.unwrap();
            if busy {
                first.xact_lock(key).within(LONG).await.unwrap();
            }
            let second = other.transaction().await.unwrap();
            let mut waiting = second.xact_lock(key).within(Duration::from_secs(60));
            let mut left = polls;
            let done = poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(false);
                }
                left -= 1;
                let polled = std::pin::Pin::new(&mut waiting).poll(cx);
                // A wait is not polled again by itself; the next poll comes after the server had a turn.
                cx.waker().wake_by_ref();
                polled.map(|granted| granted.is_ok())
            })
            .await;
            drop(waiting);
            assert!(!(busy && done));
            // The transaction is usable, as soon as the server has given the wait up; in every other round nobody asks.
            if polls % 2 == 0 {
                let begun = Instant::now();
                assert!(is_usable(&second).await);
                assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
            }
            drop(second);
            drop(first);
            becomes(&CLUSTER, key, (0, 0)).await;
        }
    }
}

#[tokio::test]
async fn a_long_wait_lets_vacuum_through_between_its_slices() {
    let (mut one, mut two) = (client(&CLUSTER.url()).await, client(&CLUSTER.url()).await);
    let key = fresh_key();
    let first = one.transaction().await.unwrap();
    first.xact_lock(key).within(LONG).await.unwrap();
    let second = two.transaction().await.unwrap();
    let pid: i32 = second.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let (granted, ()) = tokio::join!(second.xact_lock(key).within(LONG), async {
        becomes(&CLUSTER, key, (1, 1)).await;
        let pinned = move || {
            CLUSTER
                .psql(&format!("SELECT backend_xmin FROM pg_stat_activity WHERE pid = {pid}"))
                .unwrap()
        };
        let before = pinned();
        assert!(!before.is_empty());
        CLUSTER
            .psql("CREATE TABLE IF NOT EXISTS advance (); DROP TABLE advance")
            .unwrap();
        let moved = move || wait_until(SOON, || !["", &before].contains(&pinned().as_str()));
        assert!(
            tokio::task::spawn_blocking(moved).await.unwrap(),
            "the waiter pins the same snapshot for longer than a slice"
        );
        first.commit().await.unwrap();
    });
    granted.unwrap();
}

fn pool(size: usize) -> Pool {
    let manager = Manager::new(CLUSTER.url().parse().unwrap(), NoTls);
    Pool::builder(manager).max_size(size).build().unwrap()
}

/// A body that gives a statement up and says that all is well has COMMIT wait for that statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_behind_a_statement_that_never_ends_does_not_hold_the_lock_for_ever() {
    let (key, pool) = (fresh_key(), pool(1));
    let options = XactOptions::within(SOON);
    let committed = pool.locked_transaction(key, options, async |tx| {
        let endless = tx.batch_execute("SELECT pg_sleep(3600)");
        assert!(timeout(Duration::from_millis(50), endless).await.is_err());
        Ok::<_, Error>(())
    });
    let unknown = committed.await.unwrap_err();
    assert!(matches!(unknown, LockedError::OutcomeUnknown(_)), "{unknown:?}");
    becomes(&CLUSTER, key, (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_takes_long_goes_on_though_nobody_waits_any_more() {
    let (key, pool) = (fresh_key(), pool(1));
    let onlooker = client(&CLUSTER.url()).await;
    let table = format!("slow_{}", fastrand::u64(..));
    let slow = format!(
        "CREATE TABLE {table} (n int); \
         CREATE FUNCTION {table}_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(7); RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION {table}_late()"
    );
    onlooker.batch_execute(&slow).await.unwrap();
    let insert = format!("INSERT INTO {table} VALUES (1)");
    let committed = pool.locked_transaction(key, XactOptions::within(SOON), async |tx| {
        tx.batch_execute(&insert).await
    });
    let unknown = committed.await.unwrap_err();
    assert!(matches!(unknown, LockedError::OutcomeUnknown(_)), "{unknown:?}");
    assert_eq!(seen(&CLUSTER, key), (1, 0));
    becomes(&CLUSTER, key, (0, 0)).await;
    let stored = onlooker.query(&format!("SELECT n FROM {table}"), &[]).await.unwrap();
    assert_eq!(stored.len(), 1);
}
