//! How a wait ends other than by a grant: its caller, the server, the network.

use std::time::{Duration, Instant};

use latchwork_harness::Proxy;
use latchwork_sea_orm::{XactLockError, XactLockExt as _};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, TransactionTrait as _};

use crate::support::{self, Drop, MOMENT, SOON, World, fresh_key, polled, pool};

#[tokio::test]
async fn dropped_at_any_poll_the_transaction_goes_on_and_nothing_stays_held() {
    let world = World::new().await;
    let (holder, db) = (world.database(1).await, world.database(1).await);
    // A wait that stays busy costs a slice in each round.
    for (busy, rounds) in [(false, 6), (true, 4)] {
        for round in 0..2 * rounds {
            let drop_it = if round % 2 == 0 { Drop::AtOnce } else { Drop::WhenWoken };
            let key = fresh_key();
            let first = holder.begin().await.unwrap();
            if busy {
                first.xact_lock(key).within(SOON).await.unwrap();
            }
            let second = db.begin().await.unwrap();
            let waiting = second.xact_lock(key).within(Duration::from_secs(60));
            let done = polled(waiting, round / 2, drop_it).await;
            assert!(!(busy && done.is_some()), "{done:?}");
            second.execute_unprepared("SELECT 1").await.unwrap();
            drop(second);
            drop(first);
            world.comes_to_rest().await;
            support::assert_clean(&db).await;
        }
    }
}

#[tokio::test]
async fn an_abandoned_wait_ends_with_its_slice_and_the_transaction_goes_on() {
    let world = World::new().await;
    let db = world.database(2).await;
    let key = fresh_key();
    let (first, second) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    first.xact_lock(key).within(SOON).await.unwrap();
    let abandoned = tokio::select! {
        biased;
        granted = second.xact_lock(key).within(Duration::from_secs(60)) => Some(granted),
        () = world.becomes(key, (1, 1)) => None,
    };
    assert!(abandoned.is_none());
    world.becomes(key, (1, 0)).await;
    assert!(!second.try_xact_lock(key).await.unwrap());
    first.commit().await.unwrap();
    assert!(second.try_xact_lock(key).await.unwrap());
}

#[tokio::test]
async fn a_wait_that_the_server_cancels_is_told_apart_and_leaves_the_transaction_usable() {
    let world = World::new().await;
    let db = world.database(2).await;
    let key = fresh_key();
    let (first, second) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    first.xact_lock(key).within(SOON).await.unwrap();
    let (cancelled, ()) = tokio::join!(second.xact_lock(key).within(SOON), async {
        world.becomes(key, (1, 1)).await;
        let cancel = "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        assert_eq!(world.value(cancel).await, "t");
    });
    assert!(
        matches!(cancelled, Err(XactLockError::Cancelled { .. })),
        "{cancelled:?}"
    );
    assert!(!second.try_xact_lock(key).await.unwrap());
    assert_eq!(world.seen(key).await, (1, 0));
}

#[tokio::test]
async fn a_killed_backend_and_a_silent_server_are_told_apart() {
    let world = World::new().await;
    let db = world.database(2).await;
    let key = fresh_key();
    let (first, second) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    first.xact_lock(key).within(SOON).await.unwrap();
    let (lost, ()) = tokio::join!(second.xact_lock(key).within(SOON), async {
        world.becomes(key, (1, 1)).await;
        world.terminate(key, false).await;
    });
    assert!(matches!(lost, Err(XactLockError::ConnectionLost { .. })), "{lost:?}");
    drop(second);
    drop(first);
    support::assert_clean(&db).await;

    let proxy = Proxy::start(world.cluster.endpoint()).unwrap();
    let db: DatabaseConnection = pool(&proxy.url(), 1).await.into();
    let third = db.begin().await.unwrap();
    proxy.freeze();
    let begun = Instant::now();
    let silent = third.xact_lock(fresh_key()).within(MOMENT).await;
    assert!(matches!(silent, Err(XactLockError::NoAnswer { .. })), "{silent:?}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    // Once the network is back its place in the pool is too.
    drop(third);
    proxy.thaw();
    support::assert_clean(&db).await;
    world.comes_to_rest().await;
}
