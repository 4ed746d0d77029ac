//! Transactions that begin with a lock, on a pool: who runs, and what becomes of what was left behind.

use std::time::Duration;

use diesel::{QueryResult, result::Error};
use diesel_async::{AsyncConnection as _, AsyncPgConnection, pooled_connection::AsyncDieselConnectionManager};
use latchwork_diesel_async::{Key, LockedError, LockedTransactionExt};
use latchwork_harness::Cluster;

use crate::support::{
    Bb8, CLUSTER, Deadpool, TestPool, count, count_one, counter, fresh_key, is_clean, patient, pid, pool, run, value,
};

/// A function does as well as a closure.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_come_in_several_forms_and_the_futures_can_be_spawned() {
    async fn body(tx: &mut AsyncPgConnection) -> QueryResult<i32> {
        pid(tx).await;
        Ok(1)
    }
    async fn spawned(pool: Deadpool, bb8: Bb8, key: Key, table: String) -> i32 {
        let work = async move {
            let one = pool.locked_transaction(key, patient(), body).await.unwrap();
            let two = bb8.try_locked_transaction(key, body).await.unwrap().unwrap();
            let three: Result<i32, LockedError<Error>> = pool
                .locked_transaction(key, patient(), async move |tx| {
                    count_one(tx, &table).await?;
                    Ok(1)
                })
                .await;
            let mut lent = pool.get().await.unwrap();
            let four = lent.locked_transaction(key, patient(), body).await.unwrap();
            one + two + three.unwrap() + four
        };
        tokio::spawn(work).await.unwrap()
    }
    let (table, url) = (counter(), CLUSTER.url());
    let ran = spawned(Deadpool::of(&url, 1), Bb8::of(&url, 1), fresh_key(), table.clone()).await;
    assert_eq!((ran, count(&table)), (4, "1".to_owned()));
}

async fn begins_nothing<P>(pool: &P)
where
    for<'p> &'p P: LockedTransactionExt,
{
    let body = async |_: &mut AsyncPgConnection| -> QueryResult<()> { panic!("it runs") };
    let error = pool.locked_transaction(fresh_key(), patient(), body).await;
    assert!(matches!(error, Err(LockedError::Begin(_))), "{error:?}");
}

#[tokio::test]
async fn without_a_connection_nothing_is_begun() {
    const NOWHERE: &str = "postgres://postgres@%2Fnowhere:5432/postgres";
    begins_nothing(&pool(NOWHERE, 1)).await;
    let closed = pool(&CLUSTER.url(), 1);
    closed.close();
    begins_nothing(&closed).await;
    let impatient = |limit| {
        Bb8::builder()
            .max_size(1)
            .connection_timeout(Duration::from_millis(limit))
    };
    let nobody_there = impatient(300).build_unchecked(AsyncDieselConnectionManager::new(NOWHERE));
    begins_nothing(&nobody_there).await;
    let exhausted = impatient(3_000).build_unchecked(AsyncDieselConnectionManager::new(CLUSTER.url()));
    let _the_only_one = exhausted.connection().await;
    begins_nothing(&exhausted).await;
}

/// A test transaction is let into the pool by diesel-async, and is not ours to end.
#[tokio::test]
async fn a_test_transaction_is_left_as_it_is() {
    let (pool, table) = (pool(&CLUSTER.url(), 1), counter());
    let mut connection = pool.connection().await;
    connection.begin_test_transaction().await.unwrap();
    count_one(&mut connection, &table).await.unwrap();
    drop(connection);
    begins_nothing(&pool).await;
    let mut connection = pool.connection().await;
    let kept = value(&mut connection, &format!("SELECT n FROM {table}")).await.unwrap();
    assert_eq!((kept, count(&table)), (1, "0".to_owned()));
}

async fn rolls_back_what_was_left<P: TestPool>()
where
    for<'p> &'p P: LockedTransactionExt,
{
    let cluster = Cluster::start().unwrap();
    let pool = P::of(&cluster.url(), 1);
    cluster.psql("CREATE TABLE work (n int)").unwrap();
    for (left, is_failed) in [("SELECT 1", false), ("SELECT 1/0", true)] {
        let mut connection = pool.connection().await;
        // diesel does not count a transaction that begins like this, and its test query passes in both.
        let begin = "BEGIN; INSERT INTO work VALUES (1); SAVEPOINT one";
        run(&mut connection, begin.to_owned()).await.unwrap();
        let ended = run(&mut connection, left.to_owned()).await;
        assert_eq!(ended.is_err(), is_failed);
        drop(connection);
        let key = fresh_key();
        let work = (&pool).locked_transaction(key, patient(), async |tx| {
            run(tx, "INSERT INTO work VALUES (100)".to_owned()).await
        });
        work.await.unwrap();
        is_clean(&pool).await;
    }
    assert_eq!(cluster.psql("SELECT sum(n) FROM work").unwrap(), "200");
}

/// What somebody else has left on a pool's connection is neither committed nor in the way.
#[tokio::test]
async fn transactions_that_were_left_open_in_the_pool_are_rolled_back() {
    rolls_back_what_was_left::<Deadpool>().await;
    rolls_back_what_was_left::<Bb8>().await;
}
