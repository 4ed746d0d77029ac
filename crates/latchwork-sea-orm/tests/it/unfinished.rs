//! Statements of a body that nobody waits for any more, and that do not end.

use latchwork_harness::http::in_time;
use latchwork_sea_orm::{Key, LockedError, LockedTransactionExt as _, XactOptions};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbErr};

use tokio::{sync::oneshot, task::JoinHandle};

use crate::support::{self, SOON, World, fresh_key};

const READERS: XactOptions = XactOptions::within(SOON).shared();
const SLEEPS: &str = "SELECT pg_sleep(600)";

/// A session that is in the statement which does not end.
async fn sleepers(world: &World) -> String {
    world
        .value("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(600)'")
        .await
}

/// Others that hold the same key, or are in a statement just as long, are not mistaken for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_else_is_ended() {
    let world = World::new().await;
    let db = world.database(4).await;
    let (key, another) = (fresh_key(), fresh_key());
    let stops = "SELECT pg_advisory_xact_lock(4711)";
    world.value("SELECT pg_advisory_lock(4711)").await;
    // One has the same lock, and is in a statement for longer; one has another lock; one is in no statement.
    let early = reader(&db, key, stops);
    support::eventually("it has begun long ago", async || {
        let begun = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%(4711)' AND state = 'active' \
             AND xact_start < clock_timestamp() - interval '2 s'";
        world.value(begun).await == "1"
    })
    .await;
    let elsewhere = reader(&db, another, stops);
    let idle = reader(&db, key, "SELECT 1");
    world.becomes(another, (1, 0)).await;
    world.becomes(key, (2, 0)).await;

    let sleeps = async |tx: &DatabaseTransaction| tx.execute_unprepared(SLEEPS).await.map(drop);
    let dropped = tokio::select! {
        biased;
        ended = db.locked_transaction(key, READERS, sleeps) => Some(ended),
        () = support::eventually("it sleeps", async || sleepers(&world).await == "1") => None,
    };
    assert!(dropped.is_none(), "{dropped:?}");
    support::eventually("it is ended", async || sleepers(&world).await == "0").await;
    world.becomes(key, (2, 0)).await;
    world.value("SELECT pg_advisory_unlock(4711)").await;
    for (go, other) in [early, elsewhere, idle] {
        go.send(()).unwrap();
        in_time(other).await.unwrap().unwrap();
    }
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
}

type Task = JoinHandle<Result<(), LockedError<DbErr>>>;

/// A transaction that runs a statement, and is open until it is told to end.
fn reader(db: &DatabaseConnection, key: Key, statement: &'static str) -> (oneshot::Sender<()>, Task) {
    let (go, goes) = oneshot::channel();
    let db = db.clone();
    let reads = tokio::spawn(async move {
        let body = async |tx: &DatabaseTransaction| {
            tx.execute_unprepared(statement).await?;
            goes.await.unwrap();
            tx.execute_unprepared("SELECT 1").await.map(drop)
        };
        db.locked_transaction(key, READERS, body).await
    });
    (go, reads)
}
