//! Locked transactions on a connection that the caller has.

use latchwork_sqlx::{LockedError, LockedTransactionExt as _, XactLockError, XactOptions};
use sqlx::{Connection as _, Executor as _, PgTransaction};

use crate::support::{
    CLUSTER, MOMENT, connection, count, count_one, counter, fresh_key, holder, is_free, left, patient, pool, seen,
};

#[tokio::test]
async fn it_works_on_a_connection_and_on_one_of_a_pool() {
    let (mut one, key, table) = (connection().await, fresh_key(), counter());
    let pool = pool(&CLUSTER.url(), 1);
    let body = async |tx: &mut PgTransaction<'_>| {
        assert_eq!(seen(key), (1, 0));
        count_one(tx, &table).await
    };
    one.locked_transaction(key, patient(), body).await.unwrap();
    let reborrowed = &mut one;
    reborrowed.try_locked_transaction(key, body).await.unwrap().unwrap();
    reborrowed.locked_transaction(key, patient(), body).await.unwrap();
    let mut pooled = pool.acquire().await.unwrap();
    pooled.locked_transaction(key, patient(), body).await.unwrap();
    assert!(is_free(key));
    assert_eq!(count(&table), "4");
    assert_eq!((left(&mut one).await, left(&mut pooled).await), (0, 0));
}

#[tokio::test]
async fn who_loses_does_not_run_and_the_connection_is_as_it_was() {
    let (mut one, mut other, key) = (connection().await, connection().await, fresh_key());
    let first = holder(&mut other, key).await;
    let body = async |_: &mut PgTransaction<'_>| -> sqlx::Result<()> { panic!("it runs") };
    assert!(one.try_locked_transaction(key, body).await.unwrap().is_none());
    assert_eq!(left(&mut one).await, 0);
    let late = one.locked_transaction(key, XactOptions::within(MOMENT), body).await;
    assert!(
        matches!(late, Err(LockedError::Lock(XactLockError::TimedOut { .. }))),
        "{late:?}"
    );
    assert_eq!(left(&mut one).await, 0);
    first.rollback().await.unwrap();
}

#[tokio::test]
async fn a_transaction_that_is_open_is_left_to_who_has_begun_it() {
    let (mut one, key, table) = (connection().await, fresh_key(), counter());
    let mut mine = one.begin().await.unwrap();
    count_one(&mut mine, &table).await.unwrap();
    let body = async |_: &mut PgTransaction<'_>| -> sqlx::Result<()> { panic!("it runs") };
    let refused = mine.locked_transaction(key, patient(), body).await;
    assert!(matches!(refused, Err(LockedError::Begin(_))), "{refused:?}");
    assert!(is_free(key));
    mine.commit().await.unwrap();
    assert_eq!(count(&table), "1");
}

#[tokio::test]
async fn a_transaction_that_sqlx_does_not_know_of_is_rolled_back_and_said_so() {
    let (mut one, key, table) = (connection().await, fresh_key(), counter());
    let body = async |_: &mut PgTransaction<'_>| -> sqlx::Result<()> { panic!("it runs") };
    for last in ["SELECT 1", "SELECT 1/0"] {
        one.execute("BEGIN").await.unwrap();
        count_one(&mut one, &table).await.unwrap();
        let _ = one.execute(last).await;
        let refused = one.locked_transaction(key, patient(), body).await;
        assert!(matches!(refused, Err(LockedError::Begin(_))), "{refused:?}");
        one.ping().await.unwrap();
        assert!(is_free(key));
        assert_eq!(left(&mut one).await, 0);
    }
    assert_eq!(count(&table), "0");
}
