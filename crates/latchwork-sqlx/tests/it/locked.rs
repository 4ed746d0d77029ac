//! Transactions that begin with a lock, on a pool: who runs, and what becomes of what was left behind.

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use latchwork_harness::Cluster;
use latchwork_sqlx::{Key, LockedError, LockedTransactionExt as _};
use sqlx::{Connection as _, Executor as _, PgPool, PgTransaction, postgres::PgPoolOptions};

use crate::support::{CLUSTER, LONG, count, count_one, counter, fresh_key, is_clean, patient, pid, pool, run};

/// A function does as well as a closure, and a future that is made by hand.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_come_in_several_forms_and_the_futures_can_be_spawned() {
    async fn body(tx: &mut PgTransaction<'_>) -> sqlx::Result<i32> {
        pid(tx).await;
        Ok(1)
    }
    async fn spawned(pool: PgPool, key: Key, table: String) -> i32 {
        let work = async move {
            let one = pool.locked_transaction(key, patient(), body).await.unwrap();
            let two = pool.try_locked_transaction(key, body).await.unwrap().unwrap();
            let three: Result<i32, LockedError<sqlx::Error>> = pool
                .locked_transaction(key, patient(), async move |tx| {
                    count_one(tx, &table).await?;
                    Ok(1)
                })
                .await;
            one + two + three.unwrap()
        };
        tokio::spawn(work).await.unwrap()
    }
    let table = counter();
    assert_eq!(spawned(pool(&CLUSTER.url(), 1), fresh_key(), table.clone()).await, 3);
    assert_eq!(count(&table), "1");
}

#[tokio::test]
async fn without_a_connection_nothing_is_begun() {
    let patience = Duration::from_secs(3);
    let exhausted = PgPoolOptions::new().max_connections(1).acquire_timeout(patience);
    let exhausted = exhausted.connect_lazy(&CLUSTER.url()).unwrap();
    let _the_only_one = exhausted.acquire().await.unwrap();
    let nobody_there = pool("postgres://postgres@%2Fnowhere:5432/postgres", 1);
    let closed = pool(&CLUSTER.url(), 1);
    closed.close().await;
    for pool in [exhausted, nobody_there, closed] {
        let body = async |_: &mut PgTransaction<'_>| -> sqlx::Result<()> { panic!("it runs") };
        let error = pool.locked_transaction(fresh_key(), patient(), body).await;
        assert!(matches!(error, Err(LockedError::Begin(_))), "{error:?}");
    }
}

/// What somebody else has left on a pool's connection is neither committed nor in the way.
#[tokio::test]
async fn transactions_that_were_left_open_in_the_pool_are_rolled_back() {
    let cluster = Cluster::start().unwrap();
    let pool = pool(&cluster.url(), 1);
    cluster.psql("CREATE TABLE work (n int)").unwrap();
    let insert = "BEGIN; INSERT INTO work VALUES (1)";
    for (begin, left, is_failed) in [
        (insert, "SELECT 1", false),
        (insert, "SELECT 1/0", true),
        // One that has asked nothing yet would not stand out.
        ("BEGIN READ ONLY", "SET LOCAL app.tenant = '42'", false),
    ] {
        let mut connection = pool.acquire().await.unwrap();
        // sqlx does not count a transaction that begins like this.
        connection.execute(begin).await.unwrap();
        assert_eq!(connection.execute(left).await.is_err(), is_failed);
        connection.ping().await.unwrap();
        drop(connection);
        let key = fresh_key();
        let work = pool.locked_transaction(key, patient(), async |tx| {
            run(tx, "INSERT INTO work VALUES (100)".to_owned()).await
        });
        work.await.unwrap();
        is_clean(&pool).await;
    }
    assert_eq!(cluster.psql("SELECT sum(n) FROM work").unwrap(), "300");
}

/// What sqlx rolls back is there, so that the server has nothing to warn of.
#[tokio::test]
async fn a_failure_is_in_the_servers_log_once() {
    let cluster = Cluster::start().unwrap();
    let parent = "CREATE TABLE parent (n int PRIMARY KEY); \
         CREATE TABLE child (n int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)";
    cluster.psql(parent).unwrap();
    let (pool, key) = (pool(&cluster.url(), 1), fresh_key());
    let mut errors = 0;
    for does in ["INSERT INTO child VALUES (404)", "SELECT 1/0"] {
        let work = async |tx: &mut PgTransaction<'_>| {
            let _ = run(tx, does.to_owned()).await;
            Ok::<_, sqlx::Error>(())
        };
        let pooled = pool.locked_transaction(key, patient(), async |tx| work(tx).await).await;
        assert!(matches!(pooled, Err(LockedError::Aborted(_))), "{pooled:?}");
        let mut connection = pool.acquire().await.unwrap();
        let lent = connection
            .locked_transaction(key, patient(), async |tx| work(tx).await)
            .await;
        assert!(matches!(lent, Err(LockedError::Aborted(_))), "{lent:?}");
        // The server tells of the failure, and of what it refuses after it.
        errors += if does.starts_with("INSERT") { 2 } else { 4 };
    }
    tokio::time::timeout(LONG, pool.close()).await.unwrap();
    let log = cluster.log();
    let warns = ["WARNING:", "FATAL:"].iter().any(|word| log.contains(word));
    assert!(!warns && log.matches("ERROR:").count() == errors, "{log}");
}

/// An error that is transparent for sqlx's hides it, and shows what is in it.
#[tokio::test]
async fn a_conflict_is_run_again_though_a_transparent_error_hides_it() {
    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Shown(sqlx::Error);

    let (pool, table, runs) = (pool(&CLUSTER.url(), 1), counter(), AtomicU32::new(0));
    let attempts = NonZeroU32::new(2).unwrap();
    let work = pool.retrying_locked_transaction(fresh_key(), patient(), attempts, async |tx| {
        count_one(tx, &table).await.map_err(Shown)?;
        match runs.fetch_add(1, Relaxed) {
            0 => run(tx, "DO $$ BEGIN RAISE serialization_failure; END $$".to_owned())
                .await
                .map_err(Shown),
            _ => Ok(()),
        }
    });
    work.await.unwrap();
    assert_eq!((runs.load(Relaxed), count(&table)), (2, "1".to_owned()));
}
