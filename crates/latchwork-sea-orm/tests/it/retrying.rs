//! Transactions that are run again.

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering},
};

use latchwork_sea_orm::{LockedError, LockedTransactionExt as _, XactLockError, XactLockExt as _, XactOptions};
use sea_orm::{ConnectionTrait as _, DatabaseTransaction, DbErr, TransactionError, TransactionTrait as _};

use crate::support::{SOON, World, eventually, fresh_key};

const OPTIONS: XactOptions = XactOptions::within(SOON);
const THREE: NonZeroU32 = NonZeroU32::new(3).unwrap();
const MANY: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// An error of a service's own, around that of the library.
#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("the database failed")]
    Database(#[from] DbErr),
    #[error("the lock failed")]
    Lock(#[from] XactLockError),
    #[error("the nested transaction failed")]
    Nested(#[from] TransactionError<DbErr>),
}

async fn waits_for_a_row(world: &World) {
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = 'active'";
    eventually("somebody waits for a row", async || world.value(waits).await == "1").await;
}

/// A row that is moved to another partition under the body's UPDATE is a serialization failure in READ COMMITTED.
#[tokio::test]
async fn a_serialization_failure_in_the_body_is_run_again() {
    let world = World::new().await;
    let makes = "CREATE TABLE parts (part int, n int) PARTITION BY LIST (part); \
         CREATE TABLE one PARTITION OF parts FOR VALUES IN (1); CREATE TABLE two PARTITION OF parts FOR VALUES IN (2); \
         INSERT INTO parts VALUES (1, 0)";
    world.cluster.psql(makes).unwrap();
    let (db, other) = (world.database(1).await, world.database(1).await);
    for nested in [false, true] {
        world.cluster.psql("UPDATE parts SET n = 0").unwrap();
        let moves = other.begin().await.unwrap();
        moves
            .execute_unprepared("UPDATE parts SET part = 3 - part")
            .await
            .unwrap();
        let runs = AtomicU32::new(0);
        let runs = &runs;
        let update =
            async |tx: &DatabaseTransaction| tx.execute_unprepared("UPDATE parts SET n = n + 1").await.map(drop);
        let body = async |tx: &DatabaseTransaction| {
            runs.fetch_add(1, Ordering::Relaxed);
            if nested {
                tx.transaction_async(update).await?;
            } else {
                update(tx).await?;
            }
            Ok::<_, OrderError>(())
        };
        let (done, ()) = tokio::join!(
            db.retrying_locked_transaction(fresh_key(), OPTIONS, THREE, body),
            async {
                waits_for_a_row(&world).await;
                moves.commit().await.unwrap();
            }
        );
        done.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
        assert_eq!(world.value("SELECT n FROM parts").await, "1");
    }
}

/// Two that take two rows in opposite orders; and the lock of one against the row of the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlocks_are_run_again_until_all_is_done() {
    let world = World::new().await;
    world
        .cluster
        .psql("CREATE TABLE pair (id int, n int); INSERT INTO pair VALUES (1, 0), (2, 0)")
        .unwrap();
    let db = world.database(2).await;
    let barrier = tokio::sync::Barrier::new(2);
    let runs = AtomicU32::new(0);
    let (barrier, runs) = (&barrier, &runs);
    let update = async |tx: &DatabaseTransaction, id: u32| {
        tx.execute_unprepared(&format!("UPDATE pair SET n = n + 1 WHERE id = {id}"))
            .await
    };
    let update = &update;
    let works = |first: u32, second: u32| {
        let is_first_time = AtomicU32::new(1);
        let db = &db;
        async move {
            let is_first_time = &is_first_time;
            let body = async |tx: &DatabaseTransaction| {
                runs.fetch_add(1, Ordering::Relaxed);
                update(tx, first).await?;
                if is_first_time.swap(0, Ordering::Relaxed) == 1 {
                    barrier.wait().await;
                }
                update(tx, second).await?;
                Ok::<_, OrderError>(())
            };
            db.retrying_locked_transaction(fresh_key(), OPTIONS, MANY, body).await
        }
    };
    let (one, two) = tokio::join!(works(1, 2), works(2, 1));
    one.unwrap();
    two.unwrap();
    // The server may find both guilty at once.
    assert!(runs.load(Ordering::Relaxed) >= 3);
    assert_eq!(world.value("SELECT string_agg(n::text, ',') FROM pair").await, "2,2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_of_locks_that_the_body_takes_is_run_again() {
    let world = World::new().await;
    let db = world.database(2).await;
    let (a, b) = (fresh_key(), fresh_key());
    let barrier = tokio::sync::Barrier::new(2);
    let (barrier, db) = (&barrier, &db);
    let works = |first, second| async move {
        let is_first_time = AtomicU32::new(1);
        let is_first_time = &is_first_time;
        let body = async |tx: &DatabaseTransaction| {
            if is_first_time.swap(0, Ordering::Relaxed) == 1 {
                barrier.wait().await;
            }
            tx.xact_lock(second).within(SOON).await?;
            Ok::<_, OrderError>(())
        };
        db.retrying_locked_transaction(first, OPTIONS, MANY, body).await
    };
    let (one, two) = tokio::join!(works(a, b), works(b, a));
    one.unwrap();
    two.unwrap();
    world.comes_to_rest().await;
}

/// A trigger that is deferred fails in COMMIT, twice.
#[tokio::test]
async fn a_serialization_failure_in_the_commit_is_run_again() {
    let world = World::new().await;
    let makes = "CREATE TABLE stored (n int); CREATE SEQUENCE tries; \
         CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF nextval('tries') < 3 THEN RAISE serialization_failure; END IF; RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON stored DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION fails()";
    world.cluster.psql(makes).unwrap();
    let db = world.database(1).await;
    let stores =
        async |tx: &DatabaseTransaction| tx.execute_unprepared("INSERT INTO stored VALUES (1)").await.map(drop);
    // Two attempts are one too few.
    let two = NonZeroU32::new(2).unwrap();
    let error = db
        .retrying_locked_transaction(fresh_key(), OPTIONS, two, stores)
        .await
        .unwrap_err();
    assert!(matches!(error, LockedError::Aborted(_)), "{error:?}");
    world.cluster.psql("SELECT setval('tries', 1, false)").unwrap();
    db.retrying_locked_transaction(fresh_key(), OPTIONS, THREE, stores)
        .await
        .unwrap();
    assert_eq!(world.value("SELECT count(*) FROM stored").await, "1");
    assert_eq!(world.value("SELECT last_value FROM tries").await, "3");
    world.comes_to_rest().await;
}

#[tokio::test]
async fn other_errors_are_told_at_once() {
    let world = World::new().await;
    let db = world.database(1).await;
    let runs = AtomicU32::new(0);
    let runs = &runs;
    let fails = async |tx: &DatabaseTransaction| {
        runs.fetch_add(1, Ordering::Relaxed);
        tx.execute_unprepared("SELECT 1 / 0").await.map(drop)
    };
    let error = db
        .retrying_locked_transaction(fresh_key(), OPTIONS, THREE, fails)
        .await
        .unwrap_err();
    assert!(matches!(error, LockedError::Body(_)), "{error:?}");
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}
