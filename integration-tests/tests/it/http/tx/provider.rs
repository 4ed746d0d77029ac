//! The provider by itself.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use latchwork_core::{Key, Mode};
use latchwork_harness::{Cluster, PgBouncer, PoolMode};
use latchwork_http::tx::{SqlValue, TxError, TxProvider, TxRequest};
use latchwork_postgres::{
    PostgresOptions,
    transaction::{DeadpoolTx, PooledTx, XactLockExt as _},
};
use tokio_postgres::NoTls;

use crate::onlooker::{Onlooker, assert_quiet, connect, eventually, majors};

const KEY: Key = Key::bigint(5);

fn pool(cluster: &Cluster, size: usize) -> Pool {
    pool_at(&cluster.url(), size)
}

fn pool_at(url: &str, size: usize) -> Pool {
    let manager = Manager::new(url.parse().unwrap(), NoTls);
    Pool::builder(manager).max_size(size).build().unwrap()
}

async fn begin(provider: &DeadpoolTx, request: TxRequest) -> Option<PooledTx> {
    provider.begin(request).await.unwrap()
}

#[tokio::test]
async fn a_statement_takes_and_gives_texts_bytes_and_numbers() {
    let cluster = Cluster::start().unwrap();
    let provider = DeadpoolTx::from(pool(&cluster, 1));
    let mut tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    let values = [
        SqlValue::Text("a text, ö"),
        SqlValue::Bytes(&[0, 255, 7]),
        SqlValue::Int(-5),
    ];
    let sql = "SELECT $1, $2, ($3 + 1)::text, NULL::bytea";
    let row = DeadpoolTx::query(&mut tx, sql, &values).await.unwrap().unwrap();
    let row: Vec<_> = row.iter().map(Option::as_deref).collect();
    assert_eq!(
        row,
        [Some("a text, ö".as_bytes()), Some(&[0, 255, 7]), Some(b"-4"), None]
    );
    assert!(
        DeadpoolTx::query(&mut tx, "SELECT 'a' WHERE false", &[])
            .await
            .unwrap()
            .is_none()
    );
    let error = DeadpoolTx::query(&mut tx, "SELECT 1", &[]).await.unwrap_err();
    assert!(matches!(error, TxError::Other(_)), "{error:?}");
    let error = DeadpoolTx::query(&mut tx, "SELECT * FROM nowhere", &[])
        .await
        .unwrap_err();
    assert!(matches!(error, TxError::Setup(_)), "{error:?}");
    let error = DeadpoolTx::query(&mut tx, "SELECT 'a'", &[]).await.unwrap_err();
    assert!(matches!(error, TxError::Aborted(_)), "{error:?}");
    let error = DeadpoolTx::commit(tx).await.unwrap_err();
    assert!(matches!(error, TxError::Aborted(_)), "{error:?}");
}

#[tokio::test]
async fn readers_share_and_the_isolation_is_read_committed_whatever_the_default_is() {
    let cluster = Cluster::start().unwrap();
    cluster
        .psql("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
        .unwrap();
    let provider = DeadpoolTx::from(pool(&cluster, 4));
    let shared = || TxRequest::new(KEY).with_mode(Mode::Shared);
    let mut one = begin(&provider, shared()).await.unwrap();
    let other = begin(&provider, shared()).await.unwrap();
    assert!(begin(&provider, TxRequest::new(KEY)).await.is_none());
    let limited = TxRequest::new(KEY).with_wait(Duration::from_millis(30));
    assert!(begin(&provider, limited).await.is_none());
    let level = "SELECT current_setting('transaction_isolation')";
    let row = DeadpoolTx::query(&mut one, level, &[]).await.unwrap().unwrap();
    assert_eq!(row[0].as_deref(), Some(&b"read committed"[..]));
    // Further locks on the same transaction.
    assert!(one.try_xact_lock(Key::pair(1, 2)).await.unwrap());
    assert!(!other.try_xact_lock(Key::pair(1, 2)).await.unwrap());
    DeadpoolTx::commit(one).await.unwrap();
    DeadpoolTx::rollback(other).await.unwrap();
    let alone = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    assert!(begin(&provider, shared()).await.is_none());
    DeadpoolTx::commit(alone).await.unwrap();
    assert_eq!(provider_size(&provider), 4 - 1);
    assert_quiet(&cluster);
}

/// How many connections the pool has made, from its `Debug`.
fn provider_size(provider: &DeadpoolTx) -> usize {
    let text = format!("{provider:?}");
    let (_, size) = text.split_once(" size: ").unwrap();
    size.split(',').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_lock_of_session_scope_keeps_transactions_out_and_the_other_way_round() {
    let cluster = Cluster::start().unwrap();
    let locks = connect(&cluster.url(), PostgresOptions::default()).await.locks();
    let provider = DeadpoolTx::from(pool(&cluster, 2));
    let guard = locks.try_acquire(KEY).await.unwrap().unwrap();
    assert!(begin(&provider, TxRequest::new(KEY)).await.is_none());
    guard.release().await.unwrap();
    let tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    assert!(locks.try_acquire(KEY).await.unwrap().is_none());
    DeadpoolTx::commit(tx).await.unwrap();
    drop(locks.try_acquire(KEY).await.unwrap().unwrap());
    locks.close().await;
}

#[tokio::test]
async fn a_transaction_that_is_dropped_closes_its_connection() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let pool = pool(&cluster, 1);
    let provider = DeadpoolTx::from(pool.clone());
    let tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    assert_eq!((onlooker.held().await, pool.status().size), (1, 1));
    drop(tx);
    assert_eq!(pool.status().size, 0);
    eventually("the server has let go", async || onlooker.held().await == 0).await;
    let tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    DeadpoolTx::commit(tx).await.unwrap();
}

/// A begin that is dropped at any moment leaves no transaction behind, in the pool least of all.
#[tokio::test]
async fn a_begin_that_is_dropped_midway_leaves_nothing() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let provider = DeadpoolTx::from(pool(&cluster, 2));
    for micros in (0..3_000).step_by(100) {
        let request = TxRequest::new(KEY);
        let begun = tokio::time::timeout(Duration::from_micros(micros), provider.begin(request)).await;
        drop(begun);
        eventually("nothing is held", async || onlooker.held().await == 0).await;
        let tx = begin(&provider, TxRequest::new(KEY)).await.expect("it is free");
        DeadpoolTx::rollback(tx).await.unwrap();
    }
}

/// What somebody else has left open on a pooled connection is neither committed nor in the way.
#[tokio::test]
async fn a_transaction_that_a_connection_comes_with_is_rolled_back_first() {
    let cluster = Cluster::start().unwrap();
    cluster.psql("CREATE TABLE leaked (n int)").unwrap();
    let pool = pool(&cluster, 1);
    let provider = DeadpoolTx::from(pool.clone());
    for left in ["BEGIN; INSERT INTO leaked VALUES (1)", "BEGIN; SAVEPOINT a", "BEGIN"] {
        for aborted in [false, true] {
            let client = pool.get().await.unwrap();
            client.batch_execute(left).await.unwrap();
            if aborted {
                client.batch_execute("SELECT 1 / 0").await.unwrap_err();
            }
            drop(client);
            let tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
            tx.execute("SELECT 1", &[]).await.unwrap();
            DeadpoolTx::commit(tx).await.unwrap();
        }
    }
    assert_eq!(cluster.psql("SELECT count(*) FROM leaked").unwrap(), "0");
}

#[tokio::test]
async fn every_major_tells_a_commit_from_none() {
    for installation in majors() {
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        commits_are_told_from_none(&cluster, &cluster.url()).await;
    }
}

#[tokio::test]
async fn it_works_through_a_pooler_in_transaction_mode() {
    let cluster = Cluster::start().unwrap();
    let pooler = PgBouncer::start(&cluster, PoolMode::Transaction).unwrap();
    commits_are_told_from_none(&cluster, &pooler.url()).await;
}

async fn commits_are_told_from_none(cluster: &Cluster, url: &str) {
    cluster
        .psql("CREATE TABLE stored (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        .unwrap();
    let provider = DeadpoolTx::from(pool_at(url, 2));
    for (work, stored) in [
        (&["INSERT INTO stored VALUES (1)"][..], Ok(())),
        (&["INSERT INTO stored VALUES (1)"], Err("Aborted")),
        (&["INSERT INTO stored VALUES (2)", "SELECT 1 / 0"], Err("Aborted")),
        (&["INSERT INTO stored VALUES (3)", "ROLLBACK"], Err("OutcomeUnknown")),
    ] {
        let tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
        assert!(begin(&provider, TxRequest::new(KEY)).await.is_none());
        for statement in work {
            let done = tx.batch_execute(statement).await;
            assert_eq!(done.is_err(), statement.contains('/'));
        }
        let committed = DeadpoolTx::commit(tx).await;
        let committed = committed.map_err(|error| format!("{error:?}").split('(').next().unwrap().to_owned());
        assert_eq!(committed, stored.map_err(str::to_owned), "{work:?}");
    }
    assert_eq!(cluster.psql("SELECT n FROM stored").unwrap(), "1");
    // A statement that does not end is ended, after the request's limit.
    let request = TxRequest::new(KEY).with_answer_within(Duration::from_millis(100));
    let tx = begin(&provider, request).await.unwrap();
    let sleeps = tokio::time::timeout(Duration::from_millis(50), tx.batch_execute("SELECT pg_sleep(600)"));
    sleeps.await.unwrap_err();
    let error = DeadpoolTx::rollback(tx).await.unwrap_err();
    assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
    let onlooker = Onlooker::new(&cluster.url()).await;
    eventually("the lock is free", async || onlooker.held().await == 0).await;
}
