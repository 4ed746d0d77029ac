//! Servers that die in the middle of everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use latchwork_core::{Locks, ReleaseError};
use latchwork_harness::{Cluster, StopMode};

use crate::onlooker::{Onlooker, SOON, connect, eventually, quick};

#[derive(Default)]
struct Tally {
    stop: AtomicBool,
    held: AtomicU32,
    outages: AtomicU32,
}

/// Acquires and releases a key that nobody else wants. So it is never held by others, whatever happens to the server.
async fn alone(locks: Locks, number: usize, tally: Arc<Tally>) {
    let key = ["row", &number.to_string()];
    while !tally.stop.load(Ordering::Relaxed) {
        tokio::task::yield_now().await;
        let acquired = if number.is_multiple_of(2) {
            locks
                .try_acquire(key)
                .await
                .map(|guard| guard.expect("an outage is not contention"))
        } else {
            locks.acquire(key).within(SOON * 3).await
        };
        let guard = match acquired {
            Ok(guard) => guard,
            Err(error) => {
                assert!(error.is_outage() && !error.is_timeout(), "{error:?}");
                tally.outages.fetch_add(1, Ordering::Relaxed);
                // One that fails at once would keep everybody else from running.
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                continue;
            }
        };
        tally.held.fetch_add(1, Ordering::Relaxed);
        match guard.release().await {
            Ok(()) | Err(ReleaseError::Lost { .. } | ReleaseError::Unconfirmed { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_during_acquires_holds_and_releases_it_is_never_reported_as_busy() {
    let cluster = Cluster::start().unwrap();
    let locks = connect(&cluster.url(), quick()).await.locks();
    let tally = Arc::new(Tally::default());
    let loads: Vec<_> = (0..32)
        .map(|number| tokio::spawn(alone(locks.clone(), number, Arc::clone(&tally))))
        .collect();
    for _ in 0..4 {
        let (held, outages) = (
            tally.held.load(Ordering::Relaxed),
            tally.outages.load(Ordering::Relaxed),
        );
        eventually("it works", async || tally.held.load(Ordering::Relaxed) > held + 1_000).await;
        cluster.kill_server().unwrap();
        eventually("the outage is told", async || {
            tally.outages.load(Ordering::Relaxed) > outages
        })
        .await;
        cluster.restart(StopMode::Fast).unwrap();
    }
    let held = tally.held.load(Ordering::Relaxed);
    eventually("it works again", async || {
        tally.held.load(Ordering::Relaxed) > held + 1_000
    })
    .await;
    tally.stop.store(true, Ordering::Relaxed);
    for load in loads {
        load.await.unwrap();
    }
    let onlooker = Onlooker::new(&cluster.url()).await;
    eventually("nothing is held", async || onlooker.held().await == 0).await;
    assert_eq!(locks.stats().keys, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_many_queue_it_is_waited_for_and_each_of_them_has_his_turn() {
    let cluster = Cluster::start().unwrap();
    let (one, other) = (
        connect(&cluster.url(), quick()).await,
        connect(&cluster.url(), quick()).await,
    );
    let guard = one.locks().try_acquire("job").await.unwrap().unwrap();
    let turns: Vec<_> = (0..40)
        .map(|number| {
            let locks = if number % 2 == 0 { one.locks() } else { other.locks() };
            tokio::spawn(async move {
                let guard = locks.acquire("job").within(SOON * 3).await.unwrap();
                guard.release().await.is_ok()
            })
        })
        .collect();
    Onlooker::new(&cluster.url()).await.waiter().await;
    cluster.kill_server().unwrap();
    cluster.restart(StopMode::Fast).unwrap();
    drop(guard);
    for turn in turns {
        assert!(turn.await.unwrap());
    }
}
