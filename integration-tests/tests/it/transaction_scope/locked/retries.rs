//! Running it again after what the server calls a conflict.

use std::{
    error::Error as StdError,
    fmt,
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use latchwork_core::{
    Key,
    xact::{LockedError, XactLockError, XactOptions},
};
use latchwork_postgres::transaction::{LockedTransactionExt as _, PooledTx, XactLockExt as _};
use tokio::sync::Barrier;
use tokio_postgres::{Error, IsolationLevel};

use super::{KEY, Shop, adds, patient};
use crate::transaction_scope::{LONG, MOMENT, client};

const FIVE: NonZeroU32 = NonZeroU32::new(5).unwrap();

/// As an application has it: what was wrong is in the chain, and not the first in it.
#[derive(Debug)]
enum AppError {
    Database(Error),
    /// It is not seen itself, only what is in it.
    Shown(Error),
    Lock(XactLockError),
}

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the shop failed")
    }
}

impl StdError for AppError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Database(error) => Some(error),
            Self::Shown(error) => error.source(),
            Self::Lock(error) => Some(error),
        }
    }
}

/// A serialization failure of the server's own making.
async fn conflict(shop: &Shop) -> Error {
    let mut client = client(&shop.cluster.url()).await;
    let snapshot = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead);
    let transaction = snapshot.start().await.unwrap();
    transaction.batch_execute("SELECT n FROM noise").await.unwrap();
    shop.cluster.psql("UPDATE noise SET n = n + 1").unwrap();
    transaction
        .batch_execute("UPDATE noise SET n = 1000")
        .await
        .unwrap_err()
}

/// With tables that tests run into each other on.
fn shop(connections: usize) -> Shop {
    let shop = Shop::open(connections);
    for table in ["noise", "a", "b"] {
        let sql = format!("CREATE TABLE {table} (n int); INSERT INTO {table} VALUES (0)");
        shop.cluster.psql(&sql).unwrap();
    }
    shop
}

async fn count_one(tx: &PooledTx, table: &str) -> Result<(), Error> {
    tx.batch_execute(&format!("UPDATE {table} SET n = n + 1")).await
}

#[tokio::test]
async fn a_serialization_failure_is_run_again_whatever_it_is_wrapped_in() {
    let shop = shop(1);
    let runs = AtomicU32::new(0);
    let work = shop.pool.retrying_locked_transaction(KEY, patient(), FIVE, async |tx| {
        adds(tx).await.map_err(AppError::Database)?;
        match runs.fetch_add(1, Relaxed) {
            0 => Err(AppError::Database(conflict(&shop).await)),
            1 => Err(AppError::Shown(conflict(&shop).await)),
            _ => Ok(()),
        }
    });
    work.await.unwrap();
    assert_eq!((runs.load(Relaxed), shop.count().as_str()), (3, "1"));
    shop.is_clean().await;
}

#[tokio::test]
async fn it_ends_with_the_last_attempt_and_at_once_with_any_other_error() {
    let shop = shop(1);
    for allowed in [NonZeroU32::MIN, FIVE] {
        let runs = AtomicU32::new(0);
        let conflicts = shop
            .pool
            .retrying_locked_transaction(KEY, patient(), allowed, async |_| {
                runs.fetch_add(1, Relaxed);
                Err::<(), _>(conflict(&shop).await)
            });
        assert!(matches!(conflicts.await, Err(LockedError::Body(_))));
        assert_eq!(runs.into_inner(), allowed.get());
    }
    let runs = AtomicU32::new(0);
    let fails = shop.pool.retrying_locked_transaction(KEY, patient(), FIVE, async |tx| {
        runs.fetch_add(1, Relaxed);
        tx.batch_execute("SELECT 1/0").await
    });
    assert!(matches!(fails.await, Err(LockedError::Body(_))));
    assert_eq!(runs.load(Relaxed), 1);

    let mut other = client(&shop.cluster.url()).await;
    let holds = other.transaction().await.unwrap();
    holds.xact_lock(KEY).within(LONG).await.unwrap();
    let options = XactOptions::within(MOMENT);
    let late = shop.pool.retrying_locked_transaction(KEY, options, FIVE, adds).await;
    assert!(late.unwrap_err().is_timeout());
    holds.commit().await.unwrap();
    shop.is_clean().await;
}

/// The first run of each has one row, and wants the other's.
#[tokio::test]
async fn a_deadlock_over_rows_is_run_again() {
    let shop = shop(2);
    let (both, runs) = (Barrier::new(2), AtomicU32::new(0));
    let work = async |key: i64, mine: &str, other: &str| {
        let key = Key::bigint(key);
        let work = shop.pool.retrying_locked_transaction(key, patient(), FIVE, async |tx| {
            let run = runs.fetch_add(1, Relaxed);
            count_one(tx, mine).await?;
            if run < 2 {
                both.wait().await;
            }
            count_one(tx, other).await
        });
        work.await.unwrap();
    };
    tokio::join!(work(1, "a", "b"), work(2, "b", "a"));
    let counted = shop.cluster.psql("SELECT a.n, b.n FROM a, b").unwrap();
    assert_eq!((runs.load(Relaxed), counted.as_str()), (3, "2|2"));
    shop.is_clean().await;
}

#[tokio::test]
async fn a_deadlock_over_locks_that_bodies_take_is_run_again() {
    let shop = shop(2);
    let (both, runs) = (Barrier::new(2), AtomicU32::new(0));
    let work = async |mine, other| {
        let work = shop
            .pool
            .retrying_locked_transaction(mine, patient(), FIVE, async |tx| {
                if runs.fetch_add(1, Relaxed) < 2 {
                    both.wait().await;
                }
                tx.xact_lock(other).within(LONG).await.map_err(AppError::Lock)
            });
        work.await.unwrap();
    };
    let (a, b) = (Key::bigint(1), Key::bigint(2));
    tokio::join!(work(a, b), work(b, a));
    assert_eq!(runs.load(Relaxed), 3);
    shop.is_clean().await;
}

/// COMMIT checks rows that others have, and finds what a body with such an error would have found.
#[tokio::test]
async fn a_deadlock_at_commit_is_run_again() {
    let shop = shop(2);
    for (table, other) in [("a", "b"), ("b", "a")] {
        let trigger = format!(
            "CREATE FUNCTION {table}_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 PERFORM n FROM {other} FOR UPDATE; RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED \
                 FOR EACH ROW EXECUTE FUNCTION {table}_late()"
        );
        shop.cluster.psql(&trigger).unwrap();
    }
    let (both, runs) = (Barrier::new(2), AtomicU32::new(0));
    let work = async |key: i64, table: &str| {
        let key = Key::bigint(key);
        let work = shop.pool.retrying_locked_transaction(key, patient(), FIVE, async |tx| {
            count_one(tx, table).await?;
            if runs.fetch_add(1, Relaxed) < 2 {
                both.wait().await;
            }
            Ok::<_, Error>(())
        });
        work.await.unwrap();
    };
    tokio::join!(work(1, "a"), work(2, "b"));
    let counted = shop.cluster.psql("SELECT a.n, b.n FROM a, b").unwrap();
    assert_eq!((runs.load(Relaxed), counted.as_str()), (3, "1|1"));
    shop.is_clean().await;
}
