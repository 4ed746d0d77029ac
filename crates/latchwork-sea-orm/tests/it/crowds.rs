//! Many tasks, few connections.

use std::time::Duration;

use latchwork_sea_orm::{Key, LockedTransactionExt as _, XactOptions};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbErr, Statement};

use crate::support::{self, SOON, World, fresh_key};

/// Reads, and writes what it has read and one more.
async fn counts(tx: &DatabaseTransaction) -> Result<(), DbErr> {
    let read = Statement::from_string(tx.get_database_backend(), "SELECT n FROM counter");
    let n: i32 = tx.query_one_raw(read).await?.unwrap().try_get_by_index(0)?;
    tx.execute_unprepared(&format!("UPDATE counter SET n = {}", n + 1))
        .await
        .map(drop)
}

async fn world() -> World {
    let world = World::new().await;
    let makes = "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)";
    world.cluster.psql(makes).unwrap();
    world
}

/// How often eight tasks have counted, some of which are dropped midway.
async fn crowd(db: &DatabaseConnection, key: Key, impatient: bool) -> usize {
    let mut tasks = Vec::new();
    for task in 0..8_u64 {
        let db = db.clone();
        tasks.push(tokio::spawn(async move {
            let mut done = 0;
            for round in 0..15_u64 {
                let counted = db.locked_transaction(key, XactOptions::within(SOON), counts);
                if impatient && task % 2 == 1 {
                    let patience = Duration::from_micros(200 * round);
                    if let Ok(counted) = tokio::time::timeout(patience, counted).await {
                        counted.unwrap();
                    }
                } else {
                    counted.await.unwrap();
                    done += 1;
                }
            }
            done
        }));
    }
    let mut done = 0;
    for task in tasks {
        done += tokio::time::timeout(3 * SOON, task).await.expect("it hangs").unwrap();
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_of_one_two_and_eight_connections_are_enough_for_lock_and_work() {
    let world = world().await;
    for size in [1, 2, 8] {
        world.cluster.psql("UPDATE counter SET n = 0").unwrap();
        let db = world.database(size).await;
        assert_eq!(crowd(&db, fresh_key(), false).await, 120);
        assert_eq!(world.value("SELECT n FROM counter").await, "120");
        support::assert_clean(&db).await;
    }
    world.comes_to_rest().await;
    assert_eq!(world.complaints(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_leave_midway_are_in_nobodys_way() {
    let world = world().await;
    for size in [1, 2] {
        world.cluster.psql("UPDATE counter SET n = 0").unwrap();
        let db = world.database(size).await;
        let patient = crowd(&db, fresh_key(), true).await;
        assert_eq!(patient, 60);
        world.comes_to_rest().await;
        support::assert_clean(&db).await;
        // Each of the others was stored or not, and none twice.
        let counted: usize = world.value("SELECT n FROM counter").await.parse().unwrap();
        assert!((60..=120).contains(&counted), "{counted}");
    }
    assert_eq!(world.complaints(), Vec::<String>::new());
}
