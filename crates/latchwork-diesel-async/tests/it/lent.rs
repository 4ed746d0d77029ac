//! Locked transactions on a connection that the caller has.

use diesel::QueryResult;
use diesel_async::{AsyncConnection as _, AsyncPgConnection};
use latchwork_diesel_async::{LockedError, LockedTransactionExt as _, XactLockError, XactOptions};

use crate::support::{
    Bb8, CLUSTER, MOMENT, TestPool as _, connection, count, count_one, counter, end, fresh_key, holder, is_free, left,
    patient, pool, run, seen,
};

#[tokio::test]
async fn it_works_on_a_connection_and_on_one_of_a_pool() {
    let (mut one, key, table) = (connection().await, fresh_key(), counter());
    let (pool, bb8) = (pool(&CLUSTER.url(), 1), Bb8::of(&CLUSTER.url(), 1));
    let body = async |tx: &mut AsyncPgConnection| {
        assert_eq!(seen(key), (1, 0));
        count_one(tx, &table).await
    };
    one.locked_transaction(key, patient(), body).await.unwrap();
    one.try_locked_transaction(key, body).await.unwrap().unwrap();
    let reborrowed = &mut one;
    (&mut *reborrowed)
        .locked_transaction(key, patient(), body)
        .await
        .unwrap();
    let mut pooled = pool.get().await.unwrap();
    pooled.locked_transaction(key, patient(), body).await.unwrap();
    let mut other = bb8.get().await.unwrap();
    other.locked_transaction(key, patient(), body).await.unwrap();
    assert!(is_free(key));
    assert_eq!(count(&table), "5");
    assert_eq!((left(&mut one).await, left(&mut pooled).await), (0, 0));
}

#[tokio::test]
async fn who_loses_does_not_run_and_the_connection_is_as_it_was() {
    let (mut one, key) = (connection().await, fresh_key());
    let first = holder(key).await;
    let body = async |_: &mut AsyncPgConnection| -> QueryResult<()> { panic!("it runs") };
    assert!(one.try_locked_transaction(key, body).await.unwrap().is_none());
    assert_eq!(left(&mut one).await, 0);
    let late = one.locked_transaction(key, XactOptions::within(MOMENT), body).await;
    assert!(
        matches!(late, Err(LockedError::Lock(XactLockError::TimedOut { .. }))),
        "{late:?}"
    );
    assert_eq!(left(&mut one).await, 0);
    end(first).await;
}

#[tokio::test]
async fn a_transaction_that_is_open_is_left_to_who_has_begun_it() {
    let (mut one, key, table) = (connection().await, fresh_key(), counter());
    let mine = one.transaction(async |mine| {
        count_one(mine, &table).await?;
        let body = async |_: &mut AsyncPgConnection| -> QueryResult<()> { panic!("it runs") };
        let refused = mine.locked_transaction(key, patient(), body).await;
        assert!(matches!(refused, Err(LockedError::Begin(_))), "{refused:?}");
        assert!(is_free(key));
        QueryResult::Ok(())
    });
    mine.await.unwrap();
    assert_eq!(count(&table), "1");
}

#[tokio::test]
async fn a_transaction_that_diesel_does_not_know_of_is_rolled_back_and_said_so() {
    let (mut one, key, table) = (connection().await, fresh_key(), counter());
    let body = async |_: &mut AsyncPgConnection| -> QueryResult<()> { panic!("it runs") };
    for last in ["SELECT 1", "SELECT 1/0"] {
        run(&mut one, "BEGIN".to_owned()).await.unwrap();
        count_one(&mut one, &table).await.unwrap();
        let _ = run(&mut one, last.to_owned()).await;
        let refused = one.locked_transaction(key, patient(), body).await;
        assert!(matches!(refused, Err(LockedError::Begin(_))), "{refused:?}");
        assert!(is_free(key));
        assert_eq!(left(&mut one).await, 0);
    }
    assert_eq!(count(&table), "0");
}

/// `begin_transaction` of diesel-async that was dropped midway.
#[tokio::test]
async fn a_connection_that_was_left_while_it_began_can_be_used_again() {
    let (mut one, key, table) = (connection().await, fresh_key(), counter());
    let begins = one.transaction(async |_| QueryResult::Ok(()));
    assert!(crate::support::polled(1, begins).await.is_none());
    let body = async |tx: &mut AsyncPgConnection| count_one(tx, &table).await;
    one.locked_transaction(key, patient(), body).await.unwrap();
    assert_eq!(count(&table), "1");
    assert_eq!(left(&mut one).await, 0);
}
