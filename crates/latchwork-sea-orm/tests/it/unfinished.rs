//! Statements of a body that nobody waits for any more, and that do not end.

use std::time::Duration;

use latchwork_sea_orm::{Key, LockedError, LockedTransactionExt as _, XactOptions};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbErr};

use crate::support::{self, Drop, SOON, World, fresh_key, polled};

const SLEEPS: &str = "SELECT pg_sleep(600)";

/// A session that is in the statement which does not end.
async fn sleepers(world: &World) -> String {
    world
        .value("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(600)'")
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_dropped_in_one_frees_its_lock_and_its_connection() {
    let world = World::new().await;
    let db = world.database(1).await;
    for options in [XactOptions::within(SOON), XactOptions::within(SOON).shared()] {
        let keys = [fresh_key(), fresh_key()];
        let sleeps = async |tx: &DatabaseTransaction| tx.execute_unprepared(SLEEPS).await.map(drop);
        let dropped = tokio::select! {
            biased;
            ended = db.locked_transaction(keys, options, sleeps) => Some(ended),
            () = support::eventually("it sleeps", async || sleepers(&world).await == "1") => None,
        };
        assert!(dropped.is_none(), "{dropped:?}");
        world.comes_to_rest().await;
        support::assert_clean(&db).await;
    }
}

/// The body itself gives up, and says so.
#[tokio::test]
async fn a_body_that_has_dropped_one_ends_with_its_own_error() {
    let world = World::new().await;
    let db = world.database(1).await;
    let ended = db.locked_transaction(fresh_key(), XactOptions::within(SOON), async |tx| {
        let dropped = tokio::time::timeout(Duration::from_millis(50), tx.execute_unprepared(SLEEPS)).await;
        dropped.map(drop)
    });
    let ended = tokio::time::timeout(SOON, ended).await.unwrap();
    assert!(matches!(ended, Err(LockedError::Body(_))), "{ended:?}");
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
}

/// Others that hold the same key, or are in a statement just as long, are not mistaken for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_is_ended() {
    let world = World::new().await;
    let db = world.database(4).await;
    let (key, another) = (fresh_key(), fresh_key());
    let readers = XactOptions::within(SOON).shared();
    // They begin more than a second before, or have another key, or are in no statement.
    let long = "SELECT pg_sleep(7)";
    let early = sleeper(&db, key, readers.clone(), long);
    support::eventually("it sleeps", async || {
        let begun = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(7)' AND state = 'active' \
             AND xact_start < clock_timestamp() - interval '2 s'";
        world.value(begun).await == "1"
    })
    .await;
    let elsewhere = sleeper(&db, another, readers.clone(), long);
    let idle = sleeper(&db, key, readers.clone(), "SELECT 1");
    support::eventually("both are at it", async || {
        world.seen(key).await.0 == 2 && world.seen(another).await.0 == 1
    })
    .await;

    let body = async |tx: &DatabaseTransaction| tx.execute_unprepared(SLEEPS).await.map(drop);
    let dropped = tokio::select! {
        biased;
        ended = db.locked_transaction(key, readers, body) => Some(ended),
        () = support::eventually("it sleeps", async || sleepers(&world).await == "1") => None,
    };
    assert!(dropped.is_none(), "{dropped:?}");
    support::eventually("it is ended", async || sleepers(&world).await == "0").await;
    for other in [early, elsewhere, idle] {
        tokio::time::timeout(SOON, other).await.unwrap().unwrap().unwrap();
    }
    assert_eq!(polled(async {}, 1, Drop::AtOnce).await, Some(()));
}

type Task = tokio::task::JoinHandle<Result<(), LockedError<DbErr>>>;

/// A transaction that runs a statement, and is open for seven seconds at least.
fn sleeper(db: &DatabaseConnection, key: Key, options: XactOptions, statement: &'static str) -> Task {
    let db = db.clone();
    tokio::spawn(async move {
        let body = async |tx: &DatabaseTransaction| {
            tx.execute_unprepared(statement).await?;
            if !statement.contains("sleep") {
                tokio::time::sleep(Duration::from_secs(4)).await;
            }
            tx.execute_unprepared("SELECT 1").await.map(drop)
        };
        db.locked_transaction(key, options, body).await
    })
}
