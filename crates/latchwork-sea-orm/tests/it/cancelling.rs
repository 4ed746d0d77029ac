//! Futures that are dropped at any moment, over a pool of one connection.

use std::{future::pending, num::NonZeroU32, time::Duration};

use latchwork_harness::Proxy;
use latchwork_sea_orm::{Key, LockedTransactionExt as _, XactLockExt as _, XactOptions};
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbErr, TransactionTrait as _,
    sqlx::postgres::PgPoolOptions,
};
use tokio::{runtime::Runtime, sync::oneshot};

use crate::support::{self, Drop, SOON, World, fresh_key, polled, pool};

const ENOUGH: NonZeroU32 = NonZeroU32::MIN;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_in_its_wait_it_gives_its_connection_back_with_the_slice() {
    let world = world().await;
    let (holder, db) = (world.database(1).await, world.database(1).await);
    let key = fresh_key();
    let first = holder.begin().await.unwrap();
    first.xact_lock(key).within(SOON).await.unwrap();
    for round in 0..12 {
        let drop = if round % 2 == 0 { Drop::AtOnce } else { Drop::WhenWoken };
        let options = XactOptions::within(Duration::from_secs(60));
        let body = async |tx: &DatabaseTransaction| works(tx, fresh_key()).await;
        let done = polled(
            db.retrying_locked_transaction(key, options, ENOUGH, body),
            round / 2,
            drop,
        )
        .await;
        assert!(done.is_none(), "{done:?}");
        support::assert_clean(&db).await;
        world.becomes(key, (1, 0)).await;
        let done = polled(
            db.try_locked_transaction(key, async |tx| works(tx, fresh_key()).await),
            round / 2,
            drop,
        )
        .await;
        assert!(matches!(done, None | Some(Ok(None))), "{done:?}");
        support::assert_clean(&db).await;
    }
    first.rollback().await.unwrap();
    world.comes_to_rest().await;
    assert_eq!(world.complaints(), Vec::<String>::new());
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

/// As when a program ends the runtime's work before it drops its own.
#[test]
fn dropped_outside_of_a_runtime_it_rolls_back() {
    let runtime = Runtime::new().unwrap();
    let world = runtime.block_on(world());
    let db = runtime.block_on(world.database(1));
    let (entered, enters) = oneshot::channel();
    let mut locked = Box::pin(
        db.locked_transaction(fresh_key(), XactOptions::within(SOON), async |tx| {
            tx.execute_unprepared("INSERT INTO stored VALUES (1)").await?;
            entered.send(()).unwrap();
            pending::<Result<(), DbErr>>().await
        }),
    );
    runtime.block_on(async {
        tokio::select! {
            biased;
            ended = &mut locked => panic!("{ended:?}"),
            entered = enters => entered.unwrap(),
        }
    });
    drop(locked);
    runtime.block_on(async {
        world.comes_to_rest().await;
        support::assert_clean(&db).await;
        assert_eq!(world.value("SELECT count(*) FROM stored").await, "0");
    });
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
