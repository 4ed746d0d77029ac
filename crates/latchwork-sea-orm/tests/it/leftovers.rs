//! Connections that come from the pool in a transaction of somebody else's.

use latchwork_sea_orm::{LockedTransactionExt as _, XactOptions};
use sea_orm::{ConnectionTrait as _, DbErr, sqlx::raw_sql};

use crate::support::{self, SOON, World, fresh_key};

#[tokio::test]
async fn what_a_connection_comes_with_is_neither_committed_nor_in_the_way() {
    let world = World::new().await;
    world.cluster.psql("CREATE TABLE stored (n int)").unwrap();
    let db = world.database(1).await;
    let pool = db.get_postgres_connection_pool();
    for left in [
        "BEGIN",
        "BEGIN; INSERT INTO stored VALUES (1)",
        "BEGIN; SAVEPOINT a",
        "BEGIN; SAVEPOINT a; INSERT INTO stored VALUES (1)",
        "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT pg_advisory_xact_lock(7)",
    ] {
        for aborted in [false, true] {
            let mut connection = pool.acquire().await.unwrap();
            raw_sql(left).execute(&mut *connection).await.unwrap();
            if aborted {
                raw_sql("SELECT 1 / 0").execute(&mut *connection).await.unwrap_err();
            }
            drop(connection);
            let done = db.locked_transaction(fresh_key(), XactOptions::within(SOON), async |tx| {
                assert_eq!(world.all_seen().await, (1, 0));
                tx.execute_unprepared("INSERT INTO stored VALUES (2)").await
            });
            assert_eq!(done.await.unwrap().rows_affected(), 1, "{left}");
            world.comes_to_rest().await;
            support::assert_clean(&db).await;
        }
    }
    let stored = world
        .value("SELECT string_agg(DISTINCT n::text, ',') || count(*) FROM stored")
        .await;
    assert_eq!(stored, "210");
}

/// Each transaction begins at once, and one connection after the other is put in order.
#[tokio::test]
async fn a_pool_that_is_full_of_them_comes_to_order() {
    let world = World::new().await;
    let db = world.database(3).await;
    let pool = db.get_postgres_connection_pool();
    for left in ["BEGIN; SELECT 1", "BEGIN; SELECT 1 / 0"] {
        let mut taken = Vec::new();
        for _ in 0..3 {
            let mut connection = pool.acquire().await.unwrap();
            drop(raw_sql(left).execute(&mut *connection).await);
            taken.push(connection);
        }
        drop(taken);
        support::eventually("none is left in a transaction", async || {
            let done = db.try_locked_transaction(fresh_key(), async |_| Ok::<_, DbErr>(()));
            assert_eq!(done.await.unwrap(), Some(()));
            world.is_at_rest().await
        })
        .await;
        support::assert_clean(&db).await;
    }
}
