//! Futures that are dropped at any moment, over a pool of one connection.

use latchwork_harness::Proxy;
use latchwork_sea_orm::{Key, LockedTransactionExt as _, XactLockExt as _, XactOptions};
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbErr, TransactionTrait as _,
    sqlx::postgres::PgPoolOptions,
};
use tokio::sync::oneshot;

use crate::support::{self, Drop, SOON, World, fresh_key, polled, pool};

async fn world() -> World {
    let world = World::new().await;
    world.cluster.psql("CREATE TABLE stored (n int)").unwrap();
    world
}

/// Statements, a nested transaction, and a lock in it.
async fn works(tx: &DatabaseTransaction, another: Key) -> Result<(), DbErr> {
    tx.execute_unprepared("INSERT INTO stored VALUES (1)").await?;
    let nested = tx.begin().await?;
    nested.xact_lock(another).within(SOON).await.unwrap();
    nested.execute_unprepared("UPDATE stored SET n = n + 1").await?;
    nested.commit().await
}

/// The last number of polls is enough for all of it. An answer that is there at once costs none, which differs from run
/// to run; the proxy makes that rare.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_at_any_poll_a_locked_transaction_leaves_a_clean_connection() {
    let world = world().await;
    let proxy = Proxy::start(world.cluster.endpoint()).unwrap();
    let db: DatabaseConnection = pool(&proxy.url(), 1).await.into();
    for drop in [Drop::AtOnce, Drop::WhenWoken, Drop::AtOnce, Drop::WhenWoken] {
        for times in 0.. {
            world.cluster.psql("TRUNCATE stored").unwrap();
            let (key, another) = (fresh_key(), fresh_key());
            let body = async |tx: &DatabaseTransaction| works(tx, another).await;
            let locked = db.locked_transaction(key, XactOptions::within(SOON), body);
            let done = polled(locked, times, drop).await;
            world.comes_to_rest().await;
            support::assert_clean(&db).await;
            let stored = world
                .value("SELECT coalesce(string_agg(n::text, ','), '') FROM stored")
                .await;
            if let Some(done) = done {
                done.unwrap();
                assert_eq!(stored, "2");
                break;
            }
            // COMMIT may have been under way.
            assert!(["", "2"].contains(&stored.as_str()), "{stored}");
        }
    }
    let mut complaints = world.complaints();
    // SeaORM goes back to a savepoint whose release it was dropped in.
    complaints.retain(|line| !line.contains("_sqlx_savepoint_1"));
    assert_eq!(complaints, Vec::<String>::new());
}

/// Whoever has asked may leave then; what he was to be told stands.
#[tokio::test]
async fn dropped_after_its_body_it_is_committed() {
    let world = world().await;
    let proxy = Proxy::start(world.cluster.endpoint()).unwrap();
    let db: DatabaseConnection = pool(&proxy.url(), 1).await.into();
    let (ended, ends) = oneshot::channel();
    let locked = db.locked_transaction(fresh_key(), XactOptions::within(SOON), async |tx| {
        tx.execute_unprepared("INSERT INTO stored VALUES (1)").await?;
        proxy.freeze();
        ended.send(()).unwrap();
        Ok::<_, DbErr>(())
    });
    tokio::select! {
        biased;
        ended = locked => panic!("{ended:?}"),
        ended = ends => ended.unwrap(),
    }
    proxy.thaw();
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
    assert_eq!(world.value("SELECT n FROM stored").await, "1");
}

/// Plain SeaORM over the same server, so that it is known when it learns to do it itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_of_the_librarys_own_still_needs_the_care_that_is_taken() {
    let world = world().await;
    let proxy = Proxy::start(world.cluster.endpoint()).unwrap();
    // So that BEGIN is the first thing to be answered.
    let options = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
    let pool = options.connect(&proxy.url()).await.unwrap();
    let db = DatabaseConnection::from(pool.clone());
    proxy.freeze_answers();
    let begun = polled(db.begin(), 1, Drop::AtOnce).await;
    assert!(begun.is_none());
    proxy.thaw();
    let left_open = support::value(&pool, "SELECT transaction_timestamp() <> statement_timestamp()").await == "t";
    assert!(
        left_open,
        "begin() has become cancel safe: its task is no longer needed"
    );
    // And what it has left is rolled back by us, not committed.
    db.execute_unprepared("INSERT INTO stored VALUES (1)").await.unwrap();
    let done = db.locked_transaction(fresh_key(), XactOptions::within(SOON), async |tx| {
        works(tx, fresh_key()).await
    });
    done.await.unwrap();
    assert_eq!(world.value("SELECT string_agg(n::text, ',') FROM stored").await, "2");
    support::assert_clean(&db).await;
}
