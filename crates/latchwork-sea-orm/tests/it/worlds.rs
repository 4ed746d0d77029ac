//! Other servers, and what stands before them.

use latchwork_harness::{Cluster, Installation};
use latchwork_sea_orm::{LockedTransactionExt as _, XactLockExt as _, XactOptions};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbErr};

use crate::support::{self, MOMENT, SOON, World, eventually, fresh_key, pool};

const OPTIONS: XactOptions = XactOptions::within(SOON);

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
