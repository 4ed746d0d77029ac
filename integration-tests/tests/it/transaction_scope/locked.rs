//! Transactions that hold locks from their beginning to their end.

mod retries;

use std::{
    future::{Future, pending, poll_fn},
    pin::pin,
    task::Poll,
};

use deadpool_postgres::Pool;
use futures_util::future::join_all;
use latchwork_core::{
    Key,
    xact::{FencedLimits, LockedError, XactLockError, XactOptions},
};
use latchwork_harness::Cluster;
use latchwork_postgres::transaction::{LockedTransactionExt as _, PooledTx};
use tokio_postgres::{Error, NoTls, SimpleQueryMessage};

use super::{LONG, MOMENT, client, seen};
use crate::onlooker::{connect, eventually, quick};

const KEY: Key = Key::bigint(42);

struct Shop {
    cluster: Cluster,
    pool: Pool,
}

impl Shop {
    fn open(connections: usize) -> Self {
        let cluster = Cluster::start().unwrap();
        cluster
            .psql(
                "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0); CREATE TABLE late (n int, \
                 CONSTRAINT one UNIQUE (n) DEFERRABLE INITIALLY DEFERRED)",
            )
            .unwrap();
        let manager = deadpool_postgres::Manager::new(cluster.url().parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(connections).build().unwrap();
        Self { cluster, pool }
    }

    fn count(&self) -> String {
        self.cluster.psql("SELECT n FROM counter").unwrap()
    }

    /// The pool's only connection is clean, and nothing is held.
    async fn is_clean(&self) {
        eventually("nothing is held, and no transaction is open", async || {
            let open = "SELECT (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') \
                 + (SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%')";
            self.cluster.psql(open).unwrap() == "0"
        })
        .await;
        let client = self.pool.get().await.unwrap();
        let alone = "SELECT transaction_timestamp() = statement_timestamp()";
        let says = client.simple_query(alone).await.unwrap();
        let alone = says.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        assert_eq!(alone, Some("t"));
    }
}

fn patient() -> XactOptions {
    XactOptions::within(LONG)
}

async fn adds(tx: &PooledTx) -> Result<i32, Error> {
    let n: i32 = tx.query_one("SELECT n FROM counter", &[]).await?.get(0);
    tx.execute("UPDATE counter SET n = $1", &[&(n + 1)]).await?;
    Ok(n + 1)
}

#[tokio::test]
async fn the_body_has_the_lock_and_commits_with_it() {
    let shop = Shop::open(1);
    let cluster = &shop.cluster;
    let done = shop.pool.locked_transaction(KEY, patient(), async |tx| {
        assert_eq!(seen(cluster, KEY), (1, 0));
        adds(tx).await
    });
    assert_eq!(done.await.unwrap(), 1);
    assert_eq!((shop.count().as_str(), seen(&shop.cluster, KEY)), ("1", (0, 0)));
    shop.is_clean().await;
}

#[tokio::test]
async fn of_many_at_once_none_loses_what_another_has_written_with_pools_of_one_and_two() {
    for connections in [1, 2] {
        let shop = Shop::open(connections);
        let adds = (0..40).map(|_| shop.pool.locked_transaction(KEY, patient(), adds));
        assert!(join_all(adds).await.iter().all(Result::is_ok));
        assert_eq!(shop.count(), "40");
        shop.is_clean().await;
    }
}

#[tokio::test]
async fn who_loses_a_try_or_runs_out_of_time_has_not_begun() {
    let shop = Shop::open(2);
    let mut other = client(&shop.cluster.url()).await;
    let held = other.transaction().await.unwrap();
    use latchwork_postgres::transaction::XactLockExt as _;
    held.xact_lock(KEY).within(LONG).await.unwrap();
    let never = async |_: &PooledTx| -> Result<(), Error> { panic!("the lock is taken") };
    let tried = shop.pool.try_locked_transaction([Key::bigint(1), KEY], never).await;
    assert!(matches!(tried, Ok(None)), "{tried:?}");
    let late = shop
        .pool
        .locked_transaction(KEY, XactOptions::within(MOMENT), never)
        .await;
    assert!(late.as_ref().is_err_and(LockedError::is_timeout), "{late:?}");
    let reads = shop
        .pool
        .locked_transaction(KEY, XactOptions::within(MOMENT).shared(), never)
        .await;
    assert!(reads.as_ref().is_err_and(LockedError::is_timeout), "{reads:?}");
    held.commit().await.unwrap();
    assert_eq!(shop.pool.try_locked_transaction(KEY, adds).await.unwrap(), Some(1));
    shop.is_clean().await;
}

#[tokio::test]
async fn what_fails_is_rolled_back_and_never_said_to_be_committed() {
    let shop = Shop::open(1);
    let pool = &shop.pool;
    let error = pool.locked_transaction(KEY, patient(), async |tx| {
        adds(tx).await?;
        tx.batch_execute("SELECT 1/0").await
    });
    assert!(matches!(error.await, Err(LockedError::Body(_))));
    let swallowed = pool.locked_transaction(KEY, patient(), async |tx| -> Result<(), Error> {
        adds(tx).await?;
        tx.batch_execute("SELECT 1/0").await.unwrap_err();
        Ok(())
    });
    assert!(matches!(swallowed.await, Err(LockedError::Aborted(_))));
    let deferred = pool.locked_transaction(KEY, patient(), async |tx| {
        adds(tx).await?;
        tx.batch_execute("INSERT INTO late VALUES (1), (1)").await
    });
    assert!(matches!(deferred.await, Err(LockedError::Aborted(_))));
    let own_end = pool.locked_transaction(KEY, patient(), async |tx: &PooledTx| tx.batch_execute("ROLLBACK").await);
    assert!(matches!(own_end.await, Err(LockedError::OutcomeUnknown(_))));
    let panics = tokio::spawn({
        let pool = pool.clone();
        async move {
            let panics = pool.locked_transaction(KEY, patient(), async |tx| -> Result<(), Error> {
                adds(tx).await?;
                panic!("as the test wants")
            });
            panics.await
        }
    });
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(shop.count(), "0");
    shop.is_clean().await;
}

#[tokio::test]
async fn dropped_at_any_poll_it_leaves_the_only_connection_clean() {
    let shop = Shop::open(1);
    let url = shop.cluster.url();
    let mut other = client(&url).await;
    for held in [false, true] {
        use latchwork_postgres::transaction::XactLockExt as _;
        let holds = other.transaction().await.unwrap();
        if held {
            holds.xact_lock(KEY).within(LONG).await.unwrap();
        }
        for polls in 0..40 {
            let mut work = pin!(shop.pool.locked_transaction(KEY, patient(), async |tx| {
                adds(tx).await?;
                pending::<Result<(), Error>>().await
            }));
            let mut left = polls;
            poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(());
                }
                left -= 1;
                assert!(work.as_mut().poll(context).is_pending());
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
        drop(holds);
        shop.is_clean().await;
    }
    assert_eq!(shop.count(), "0");
}

#[tokio::test]
async fn a_fenced_transaction_is_refused_once_its_grant_is_over() {
    let shop = Shop::open(2);
    let locks = connect(&shop.cluster.url(), quick()).await.locks();
    let guard = locks.acquire_fenced(KEY).within(LONG).await.unwrap();
    let (fence, limits) = (guard.fence(), FencedLimits::default());
    let done = shop.pool.fenced_transaction(&fence, limits, LONG, adds).await;
    assert_eq!(done.unwrap(), 1);
    guard.release().await.unwrap();
    let refused = shop.pool.fenced_transaction(&fence, limits, LONG, adds).await;
    assert!(
        matches!(refused, Err(LockedError::Lock(XactLockError::Superseded { key })) if key == KEY),
        "{refused:?}"
    );
    assert_eq!(shop.count(), "1");
    locks.close().await;
    shop.is_clean().await;
}
