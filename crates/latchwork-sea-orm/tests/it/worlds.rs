//! Other servers, and what stands before them.

use latchwork_harness::{Cluster, Installation, PgBouncer, PoolMode};
use latchwork_sea_orm::{Key, LockedError, LockedTransactionExt as _, XactLockError, XactLockExt as _, XactOptions};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbErr, TransactionTrait as _};

use crate::support::{self, MOMENT, SOON, World, eventually, fresh_key, pool};

const OPTIONS: XactOptions = XactOptions::within(SOON);

/// None of our statements is prepared, so that the pooler need not know of prepared ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_through_a_pooler_in_transaction_mode() {
    let world = World::new().await;
    let makes = "CREATE TABLE pooled (n int); INSERT INTO pooled VALUES (0); \
         CREATE TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO once VALUES (1)";
    world.cluster.psql(makes).unwrap();
    let pooler = PgBouncer::builder(&world.cluster, PoolMode::Transaction)
        .setting("default_pool_size", 2)
        .setting("ignore_startup_parameters", "extra_float_digits")
        .start()
        .unwrap();
    let db: DatabaseConnection = pool(&pooler.url(), 6).await.into();
    let key = fresh_key();
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let db = db.clone();
        tasks.push(tokio::spawn(async move {
            let counts = async |tx: &DatabaseTransaction| {
                let step = "DO $$ DECLARE was int := (SELECT n FROM pooled); BEGIN PERFORM pg_sleep(0.001); \
                     UPDATE pooled SET n = was + 1; END $$";
                tx.execute_unprepared(step).await.map(drop)
            };
            for _ in 0..20 {
                db.locked_transaction([key, Key::bigint(1)], OPTIONS, counts)
                    .await
                    .unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(world.value("SELECT n FROM pooled").await, "120");
    for (does, is_right) in [
        ("SELECT 1 / 0", is_aborted as fn(&LockedError<DbErr>) -> bool),
        ("INSERT INTO once VALUES (1)", is_aborted),
        ("ROLLBACK", |error| matches!(error, LockedError::OutcomeUnknown(_))),
    ] {
        let ended = db.locked_transaction(key, OPTIONS, async |tx| {
            drop(tx.execute_unprepared(does).await);
            Ok::<_, DbErr>(())
        });
        let error = ended.await.unwrap_err();
        assert!(is_right(&error), "{does}: {error:?}");
    }
    world.comes_to_rest().await;
}

fn is_aborted(error: &LockedError<DbErr>) -> bool {
    matches!(error, LockedError::Aborted(_))
}

#[tokio::test]
async fn a_hot_standby_is_refused() {
    let primary = Cluster::start().unwrap();
    let world = World::on(primary.standby().unwrap()).await;
    let db = world.database(1).await;
    let transaction = db.begin().await.unwrap();
    let by_try = transaction.try_xact_lock(fresh_key()).await.unwrap_err();
    let by_wait = transaction.xact_lock(fresh_key()).within(MOMENT).await.unwrap_err();
    drop(transaction);
    let locked = db
        .locked_transaction(fresh_key(), OPTIONS, async |_| Ok::<_, DbErr>(()))
        .await;
    let Err(LockedError::Lock(by_transaction)) = locked else {
        panic!("{locked:?}");
    };
    for error in [by_try, by_wait, by_transaction] {
        assert!(matches!(error, XactLockError::Standby { .. }), "{error:?}");
    }
    assert_eq!(world.all_seen().await, (0, 0));
    support::assert_clean(&db).await;
}

#[tokio::test]
async fn a_full_lock_table_is_an_error_of_its_own() {
    let cluster = Cluster::builder()
        .setting("max_locks_per_transaction", 10)
        .setting("max_connections", 10)
        .start()
        .unwrap();
    let world = World::on(cluster).await;
    let db = world.database(1).await;
    let transaction = db.begin().await.unwrap();
    let mut full = None;
    for key in 0..100_000 {
        if let Err(error) = transaction.try_xact_lock(Key::bigint(key)).await {
            full = Some(error);
            break;
        }
    }
    assert!(matches!(full, Some(XactLockError::LockTableFull { .. })), "{full:?}");
    drop(transaction);
    world.comes_to_rest().await;
}

#[tokio::test]
async fn every_major_tells_a_commit_from_none() {
    let majors = Installation::all();
    assert!(!majors.is_empty(), "install PostgreSQL, or run `cargo xtask setup`");
    for installation in majors {
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let world = World::on(cluster).await;
        let makes = "CREATE TABLE stored (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)";
        world.cluster.psql(makes).unwrap();
        let db = world.database(2).await;
        let keys = [fresh_key(), fresh_key()];
        for (work, expected) in [
            (&["INSERT INTO stored VALUES (1)"][..], "Committed"),
            (&["INSERT INTO stored VALUES (1)"], "Aborted"),
            (&["INSERT INTO stored VALUES (2)", "SELECT 1 / 0"], "Aborted"),
            (&["INSERT INTO stored VALUES (3)", "ROLLBACK"], "OutcomeUnknown"),
        ] {
            let ended = db.locked_transaction(keys, OPTIONS, async |tx| {
                let other = db.locked_transaction(keys, XactOptions::within(MOMENT), async |_| Ok::<_, DbErr>(()));
                assert!(other.await.unwrap_err().is_timeout());
                for statement in work {
                    drop(tx.execute_unprepared(statement).await);
                }
                Ok::<_, DbErr>(())
            });
            let ended = match ended.await {
                Ok(()) => "Committed".to_owned(),
                Err(error) => format!("{error:?}").split('(').next().unwrap().to_owned(),
            };
            assert_eq!(ended, expected, "{work:?}");
            support::assert_clean(&db).await;
        }
        assert_eq!(world.value("SELECT string_agg(n::text, ',') FROM stored").await, "1");
    }
}

#[tokio::test]
async fn no_search_path_replaces_what_a_transaction_asks_the_server() {
    let world = World::new().await;
    world
        .cluster
        .psql(
            "CREATE SCHEMA hostile;
             CREATE FUNCTION hostile.says_no(text, text) RETURNS bool LANGUAGE sql AS $$ SELECT false $$;
             CREATE OPERATOR hostile.= (LEFTARG = text, RIGHTARG = text, FUNCTION = hostile.says_no);
             CREATE FUNCTION hostile.generate_series(int, int) RETURNS SETOF int LANGUAGE sql AS $$ SELECT 1 $$;
             ALTER DATABASE postgres SET search_path = hostile, pg_catalog",
        )
        .unwrap();
    let db = world.database(1).await;
    let keys = [fresh_key(), fresh_key()];
    for taken in [&keys[..1], &keys] {
        let done = db.locked_transaction(taken, OPTIONS, async |tx| {
            assert_eq!(world.all_seen().await, (u32::try_from(taken.len()).unwrap(), 0));
            Ok::<_, DbErr>(tx.try_xact_lock(taken).await.unwrap())
        });
        assert!(done.await.unwrap());
    }
}

/// A server that stops answering in the middle does not take the connection for good.
#[tokio::test]
async fn a_network_that_comes_back_gives_the_connection_back() {
    let world = World::new().await;
    let proxy = latchwork_harness::Proxy::start(world.cluster.endpoint()).unwrap();
    let db: DatabaseConnection = pool(&proxy.url(), 1).await.into();
    // It stands still before BEGIN.
    proxy.freeze();
    let body = async |tx: &DatabaseTransaction| tx.execute_unprepared("SELECT 1").await.map(drop);
    let dropped = tokio::time::timeout(MOMENT, db.locked_transaction(fresh_key(), OPTIONS, body)).await;
    assert!(dropped.is_err());
    proxy.thaw();
    support::assert_clean(&db).await;
    eventually("it is at rest", async || world.is_at_rest().await).await;
    db.locked_transaction(fresh_key(), OPTIONS, body).await.unwrap();
}
