//! Transactions that prove the fence of a lock of session scope.

use std::time::Duration;

use latchwork_harness::Cluster;
use latchwork_postgres::{Config, Postgres, PostgresOptions, Timing};
use latchwork_sqlx::{
    Fence, FencedLimits, Key, LockedError, LockedTransactionExt as _, XactLockError, XactLockExt as _,
};
use sqlx::{Connection as _, PgConnection, PgTransaction};
use tokio::sync::oneshot;

use crate::support::{CLUSTER, LONG, MOMENT, becomes, count, count_one, counter, fresh_key, is_clean, pool, run};

/// As one process would, with a loss that is certain after moments.
async fn engine(cluster: &Cluster) -> Postgres {
    let quick = Timing::new(Duration::from_millis(250), Duration::from_millis(500));
    let config: Config = cluster.url().parse().unwrap();
    Postgres::connect(config, PostgresOptions::default().with_timing(quick))
        .await
        .unwrap()
}

/// What the transactions of a fence's holders share, and a new grant needs.
fn transactions_key(fence: &Fence) -> Key {
    Fence::transactions_key(fence.key(), fence.mode())
}

fn refuses<T: std::fmt::Debug, E: std::fmt::Debug>(done: &Result<T, LockedError<E>>, key: Key) {
    assert!(
        matches!(done, Err(LockedError::Lock(XactLockError::Superseded { key: over })) if *over == key),
        "{done:?}"
    );
}

#[tokio::test]
async fn a_grant_in_force_is_proved_and_one_that_is_over_is_refused_before_the_body() {
    let (key, table) = (fresh_key(), counter());
    let (pool, locks) = (pool(&CLUSTER.url(), 1), engine(&CLUSTER).await.locks());
    let mut lent = PgConnection::connect(&CLUSTER.url()).await.unwrap();
    let guard = locks.acquire_fenced(key).within(LONG).await.unwrap();
    let (fence, limits) = (guard.fence(), FencedLimits::default());
    let counts = async |tx: &mut PgTransaction<'_>| {
        // The proof stays until the transaction ends.
        becomes(transactions_key(&fence), (1, 0)).await;
        count_one(tx, &table).await?;
        Ok::<_, sqlx::Error>(())
    };
    pool.fenced_transaction(&fence, limits, LONG, async |tx| counts(tx).await)
        .await
        .unwrap();
    lent.fenced_transaction(&fence, limits, LONG, async |tx| counts(tx).await)
        .await
        .unwrap();
    assert_eq!(count(&table), "2");

    guard.release().await.unwrap();
    let never = async |_: &mut PgTransaction<'_>| -> sqlx::Result<()> { panic!("the grant is over") };
    refuses(&pool.fenced_transaction(&fence, limits, LONG, never).await, key);
    refuses(&lent.fenced_transaction(&fence, limits, LONG, never).await, key);
    let next = locks.acquire_fenced(key).within(LONG).await.unwrap();
    refuses(&pool.fenced_transaction(&fence, limits, LONG, never).await, key);
    let next_fence = next.fence();
    pool.fenced_transaction(&next_fence, limits, LONG, async |tx| count_one(tx, &table).await)
        .await
        .unwrap();
    assert_eq!(count(&table), "3");
    next.release().await.unwrap();
    locks.close().await;
    is_clean(&pool).await;
    assert!(lent.begin().await.unwrap().try_xact_lock(fresh_key()).await.unwrap());
}

#[tokio::test]
async fn the_next_grant_waits_until_a_fenced_transaction_has_ended() {
    let key = fresh_key();
    let (pool, locks) = (pool(&CLUSTER.url(), 1), engine(&CLUSTER).await.locks());
    let guard = locks.acquire_fenced(key).within(LONG).await.unwrap();
    let fence = guard.fence();
    let (over, is_over) = oneshot::channel();
    let done = pool.fenced_transaction(&fence, FencedLimits::default(), LONG, async |_| {
        guard.release().await.unwrap();
        over.send(()).unwrap();
        becomes(transactions_key(&fence), (1, 1)).await;
        Ok::<_, sqlx::Error>(())
    });
    let (done, next) = tokio::join!(done, async {
        is_over.await.unwrap();
        locks.acquire_fenced(key).within(LONG).await
    });
    done.unwrap();
    let next = next.unwrap();
    next.release().await.unwrap();
    locks.close().await;
}

#[tokio::test]
async fn the_server_ends_one_that_is_idle_for_too_long_and_nothing_is_stored() {
    let (key, table) = (fresh_key(), counter());
    let (pool, locks) = (pool(&CLUSTER.url(), 1), engine(&CLUSTER).await.locks());
    let guard = locks.acquire_fenced(key).within(LONG).await.unwrap();
    let (fence, limits) = (guard.fence(), FencedLimits::default().with_idle(MOMENT));
    let done = pool.fenced_transaction(&fence, limits, LONG, async |tx| {
        run(tx, format!("UPDATE {table} SET n = 1")).await?;
        becomes(transactions_key(&fence), (0, 0)).await;
        Ok::<_, sqlx::Error>(())
    });
    assert!(done.await.is_err());
    assert_eq!(count(&table), "0");
    guard.release().await.unwrap();
    locks.close().await;
}
