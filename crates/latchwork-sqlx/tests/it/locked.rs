//! Transactions that begin with a lock, on a pool: who runs, and what becomes of what was left behind.

use std::time::Duration;

use latchwork_harness::Cluster;
use latchwork_sqlx::{Key, KeySet, LockedError, LockedTransactionExt as _, XactLockError, XactOptions};
use sqlx::{Connection as _, Executor as _, PgPool, PgTransaction, postgres::PgPoolOptions};

use crate::support::{
    CLUSTER, LONG, MOMENT, becomes, connection, count, count_one, counter, fresh_key, holder, is_clean, is_free,
    patient, pid, pool, run, seen, value,
};

#[tokio::test]
async fn the_body_runs_under_the_lock_and_its_value_and_its_work_are_kept() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), counter());
    let value = pool
        .locked_transaction(key, patient(), async |tx| {
            assert_eq!(seen(key), (1, 0));
            assert!(!is_free(key));
            count_one(tx, &table).await?;
            Ok::<_, sqlx::Error>("value")
        })
        .await;
    assert_eq!(value.unwrap(), "value");
    assert!(is_free(key));
    assert_eq!(count(&table), "1");
    is_clean(&pool).await;
}

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
async fn it_waits_for_others_and_sees_what_they_have_committed() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), counter());
    let mut other = connection().await;
    let mut first = holder(&mut other, key).await;
    run(&mut first, format!("UPDATE {table} SET n = 5")).await.unwrap();
    let work = pool.locked_transaction(key, patient(), async |tx| {
        value(tx, format!("SELECT n FROM {table}")).await
    });
    let (seen, ()) = tokio::join!(work, async {
        becomes(key, (1, 1)).await;
        first.commit().await.unwrap();
    });
    assert_eq!(seen.unwrap(), 5);
}

#[tokio::test]
async fn it_is_read_committed_whatever_the_default_is() {
    let pool = pool(&CLUSTER.url(), 1);
    let mut connection = pool.acquire().await.unwrap();
    let set = "SET default_transaction_isolation = 'serializable'";
    run(&mut connection, set.to_owned()).await.unwrap();
    drop(connection);
    let level = pool.locked_transaction(fresh_key(), patient(), async |tx| {
        sqlx::query_scalar::<_, String>("SHOW transaction_isolation")
            .fetch_one(&mut **tx)
            .await
    });
    assert_eq!(level.await.unwrap(), "read committed");
}

#[tokio::test]
async fn who_loses_does_not_run() {
    let pool = pool(&CLUSTER.url(), 1);
    let keys = [fresh_key(), fresh_key()];
    let mut other = connection().await;
    let first = holder(&mut other, keys[1]).await;
    let body = async |_: &mut PgTransaction<'_>| -> sqlx::Result<()> { panic!("it runs") };
    let lost = pool.try_locked_transaction(keys, body).await.unwrap();
    assert!(lost.is_none());
    let late = pool
        .locked_transaction(keys, XactOptions::within(MOMENT), body)
        .await
        .unwrap_err();
    let all = KeySet::from(keys);
    assert!(
        matches!(&late, LockedError::Lock(XactLockError::TimedOut { keys, .. }) if keys == &all),
        "{late:?}"
    );
    assert!(late.is_timeout());
    is_clean(&pool).await;
    assert_eq!(keys.map(seen), [(0, 0), (1, 0)]);
    first.rollback().await.unwrap();
    let won = pool.try_locked_transaction(keys, async |_| {
        assert_eq!(keys.map(seen), [(1, 0); 2]);
        Ok::<_, sqlx::Error>(3)
    });
    assert_eq!(won.await.unwrap(), Some(3));
}

#[tokio::test]
async fn readers_share() {
    let pool = pool(&CLUSTER.url(), 2);
    let key = fresh_key();
    let shared = || patient().shared();
    let both = pool.locked_transaction(key, shared(), async |_| {
        let inner = pool.locked_transaction(key, shared(), async |_| Ok::<_, sqlx::Error>(seen(key)));
        Ok::<_, sqlx::Error>(inner.await.unwrap())
    });
    assert_eq!(both.await.unwrap(), (2, 0));
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
    for (left, is_failed) in [("SELECT 1", false), ("SELECT 1/0", true)] {
        let mut connection = pool.acquire().await.unwrap();
        // sqlx does not count a transaction that begins like this.
        connection.execute("BEGIN; INSERT INTO work VALUES (1)").await.unwrap();
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
    assert_eq!(cluster.psql("SELECT sum(n) FROM work").unwrap(), "200");
}

#[tokio::test]
async fn in_the_normal_course_the_servers_log_stays_empty() {
    let cluster = Cluster::start().unwrap();
    let pool = pool(&cluster.url(), 2);
    let key = fresh_key();
    for _ in 0..3 {
        let outer = pool.locked_transaction(key, patient(), async |_| {
            let busy = pool.try_locked_transaction(key, async |_| Ok::<_, sqlx::Error>(()));
            assert!(busy.await.unwrap().is_none());
            let late = pool.locked_transaction(key, XactOptions::within(MOMENT), async |_| Ok::<_, sqlx::Error>(()));
            assert!(late.await.unwrap_err().is_timeout());
            Ok::<_, sqlx::Error>(())
        });
        outer.await.unwrap();
        let failed = pool.locked_transaction(key, patient(), async |_| Err::<(), _>(std::fmt::Error));
        assert!(matches!(failed.await, Err(LockedError::Body(std::fmt::Error))));
        let mut direct = pool.acquire().await.unwrap();
        let direct = direct.locked_transaction(key, patient(), async |_| Ok::<_, sqlx::Error>(()));
        direct.await.unwrap();
    }
    tokio::time::timeout(LONG, pool.close()).await.unwrap();
    let log = cluster.log();
    assert!(
        !["WARNING:", "ERROR:", "FATAL:"].iter().any(|word| log.contains(word)),
        "{log}"
    );
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
