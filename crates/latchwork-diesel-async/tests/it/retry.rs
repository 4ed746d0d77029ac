//! Running it again after what the server calls a conflict.

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use diesel::result::Error;
use diesel_async::AsyncPgConnection;
use latchwork_diesel_async::{LockedError, LockedTransactionExt as _, XactLockError, XactLockExt as _};
use tokio::sync::Barrier;

use crate::support::{
    CLUSTER, LONG, connection, count, count_one, counter, fresh_key, is_clean, patient, pool, run, value,
};

const FIVE: NonZeroU32 = NonZeroU32::new(5).unwrap();

/// As an application has it: what was wrong is in the chain, and not the first in it.
#[derive(Debug, thiserror::Error)]
enum AppError {
    #[error("the database")]
    Database(#[from] Error),
    #[error(transparent)]
    Shown(Error),
    #[error("the lock")]
    Lock(#[from] XactLockError),
}

/// A serialization failure of the server's own making.
async fn conflict(table: &str) -> Error {
    let mut one = connection().await;
    let mut begin = one.build_transaction().repeatable_read();
    let fails = begin.run(async |tx| {
        let n = value(tx, &format!("SELECT n FROM {table}")).await?;
        CLUSTER.psql(&format!("UPDATE {table} SET n = {n}")).unwrap();
        run(tx, format!("UPDATE {table} SET n = 1000")).await
    });
    fails.await.unwrap_err()
}

#[tokio::test]
async fn a_serialization_failure_is_run_again_whatever_it_is_wrapped_in() {
    let (pool, table, noise) = (pool(&CLUSTER.url(), 1), counter(), counter());
    let runs = AtomicU32::new(0);
    let work = pool.retrying_locked_transaction(fresh_key(), patient(), FIVE, async |tx| {
        count_one(tx, &table).await?;
        match runs.fetch_add(1, Relaxed) {
            0 => Err(AppError::Database(conflict(&noise).await)),
            1 => Err(AppError::Shown(conflict(&noise).await)),
            _ => Ok(()),
        }
    });
    work.await.unwrap();
    assert_eq!((runs.load(Relaxed), count(&table)), (3, "1".to_owned()));
    is_clean(&pool).await;
}

#[tokio::test]
async fn it_ends_with_the_last_attempt_and_at_once_with_any_other_error() {
    let (pool, noise) = (pool(&CLUSTER.url(), 1), counter());
    let runs = AtomicU32::new(0);
    let conflicts = pool.retrying_locked_transaction(fresh_key(), patient(), FIVE, async |_| {
        runs.fetch_add(1, Relaxed);
        Err::<(), _>(conflict(&noise).await)
    });
    assert!(matches!(conflicts.await, Err(LockedError::Body(_))));
    assert_eq!(runs.swap(0, Relaxed), 5);
    let fails = pool.retrying_locked_transaction(fresh_key(), patient(), FIVE, async |tx| {
        runs.fetch_add(1, Relaxed);
        run(tx, "SELECT 1/0".to_owned()).await
    });
    assert!(matches!(fails.await, Err(LockedError::Body(_))));
    assert_eq!(runs.load(Relaxed), 1);
}

/// The first run of each has one row, and wants the other's.
#[tokio::test]
async fn a_deadlock_over_rows_is_run_again() {
    let (pool, a, b) = (pool(&CLUSTER.url(), 2), counter(), counter());
    let (both, runs) = (Barrier::new(2), AtomicU32::new(0));
    let work = async |mine: &str, other: &str| {
        let work = pool.retrying_locked_transaction(fresh_key(), patient(), FIVE, async |tx| {
            let run = runs.fetch_add(1, Relaxed);
            count_one(tx, mine).await?;
            if run < 2 {
                both.wait().await;
            }
            count_one(tx, other).await
        });
        work.await.unwrap();
    };
    tokio::join!(work(&a, &b), work(&b, &a));
    assert_eq!(
        (runs.load(Relaxed), count(&a), count(&b)),
        (3, "2".to_owned(), "2".to_owned())
    );
}

#[tokio::test]
async fn a_deadlock_over_locks_that_bodies_take_is_run_again() {
    let (pool, a, b) = (pool(&CLUSTER.url(), 2), fresh_key(), fresh_key());
    let (both, runs) = (Barrier::new(2), AtomicU32::new(0));
    let work = async |mine, other| {
        let work = pool.retrying_locked_transaction(mine, patient(), FIVE, async |tx| {
            if runs.fetch_add(1, Relaxed) < 2 {
                both.wait().await;
            }
            tx.xact_lock(other).within(LONG).await?;
            Ok::<_, AppError>(())
        });
        work.await.unwrap();
    };
    tokio::join!(work(a, b), work(b, a));
    assert_eq!(runs.load(Relaxed), 3);
}

/// COMMIT checks rows that others have, and finds what a body with such an error would have found.
#[tokio::test]
async fn a_deadlock_at_commit_is_run_again() {
    let (pool, a, b) = (pool(&CLUSTER.url(), 2), counter(), counter());
    for (table, other) in [(&a, &b), (&b, &a)] {
        let trigger = format!(
            "CREATE FUNCTION {table}_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 PERFORM n FROM {other} FOR UPDATE; RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED \
                 FOR EACH ROW EXECUTE FUNCTION {table}_late()"
        );
        CLUSTER.psql(&trigger).unwrap();
    }
    let (both, runs) = (Barrier::new(2), AtomicU32::new(0));
    let work = async |table: &str| {
        let body = async |tx: &mut AsyncPgConnection| {
            count_one(tx, table).await?;
            if runs.fetch_add(1, Relaxed) < 2 {
                both.wait().await;
            }
            Ok::<_, Error>(())
        };
        pool.retrying_locked_transaction(fresh_key(), patient(), FIVE, body)
            .await
            .unwrap();
    };
    tokio::join!(work(&a), work(&b));
    assert_eq!(
        (runs.load(Relaxed), count(&a), count(&b)),
        (3, "1".to_owned(), "1".to_owned())
    );
}
