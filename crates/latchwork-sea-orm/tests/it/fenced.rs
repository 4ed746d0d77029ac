//! Transactions that prove the fence of a lock of session scope.

use std::time::Duration;

use latchwork_postgres::{Config, Postgres, PostgresOptions, Timing};
use latchwork_sea_orm::{Fence, FencedLimits, Key, LockedError, LockedTransactionExt as _, XactLockError};
use sea_orm::{ConnectionTrait as _, DatabaseTransaction, DbErr};

use crate::support::{SOON, World};

const KEY: Key = Key::bigint(42);

#[tokio::test]
async fn a_grant_in_force_is_proved_and_one_that_is_over_is_refused_before_the_body() {
    let world = World::new().await;
    world
        .value("CREATE TABLE counter (n int); INSERT INTO counter VALUES (0); SELECT 1")
        .await;
    let database = world.database(1).await;
    let quick = Timing::new(Duration::from_millis(250), Duration::from_millis(500));
    let config: Config = world.cluster.url().parse().unwrap();
    let postgres = Postgres::connect(config, PostgresOptions::default().with_timing(quick));
    let locks = postgres.await.unwrap().locks();
    let guard = locks.acquire_fenced(KEY).within(SOON).await.unwrap();
    let (fence, limits) = (guard.fence(), FencedLimits::default());
    let shared = Fence::transactions_key(fence.key(), fence.mode());

    let done = database.fenced_transaction(&fence, limits, SOON, async |tx| {
        // The proof stays until the transaction ends.
        assert_eq!(world.seen(shared).await, (1, 0));
        tx.execute_unprepared("UPDATE counter SET n = n + 1").await
    });
    done.await.unwrap();
    assert_eq!(world.seen(shared).await, (0, 0));
    guard.release().await.unwrap();

    let never = async |_: &DatabaseTransaction| -> Result<(), DbErr> { panic!("the grant is over") };
    let refused = database.fenced_transaction(&fence, limits, SOON, never).await;
    assert!(
        matches!(refused, Err(LockedError::Lock(XactLockError::Superseded { key })) if key == KEY),
        "{refused:?}"
    );
    assert_eq!(world.value("SELECT n FROM counter").await, "1");
    locks.close().await;
}
