//! What is committed, what is rolled back, and what is said of it.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use latchwork_sqlx::{LockedError, LockedTransactionExt as _};
use sqlx::{Acquire as _, PgTransaction};

use crate::support::{
    CLUSTER, becomes, connection, count, count_one, counter, fresh_key, is_clean, is_free, left, patient, pool, run,
};

type Ended = Result<(), LockedError<sqlx::Error>>;

/// What a body does to a table before it returns Ok, or does not.
#[derive(Clone, Copy, Debug)]
enum Does {
    Fail,
    Swallow,
    LeaveUnchecked,
    Commit,
    RollBack,
    CommitAndBegin,
}

async fn body(tx: &mut PgTransaction<'_>, table: String, does: Does) -> sqlx::Result<()> {
    count_one(tx, &table).await?;
    match does {
        Does::Fail => run(tx, "SELECT 1/0".to_owned()).await,
        Does::Swallow => {
            run(tx, "SELECT 1/0".to_owned()).await.unwrap_err();
            Ok(())
        }
        Does::LeaveUnchecked => run(tx, format!("INSERT INTO {table}_child VALUES (404)")).await,
        Does::Commit => run(tx, "COMMIT".to_owned()).await,
        Does::RollBack => run(tx, "ROLLBACK".to_owned()).await,
        Does::CommitAndBegin => run(tx, "COMMIT; BEGIN".to_owned()).await,
    }
}

/// A table, and another whose rows are checked against it at COMMIT.
fn parent() -> String {
    let table = counter();
    let child = format!(
        "ALTER TABLE {table} ADD UNIQUE (n); \
         CREATE TABLE {table}_child (n int REFERENCES {table} (n) DEFERRABLE INITIALLY DEFERRED)"
    );
    CLUSTER.psql(&child).unwrap();
    table
}

/// How it ends, on a pool and on a connection; each is without the lock and in no transaction afterwards.
async fn ends(does: Does) -> [(Ended, String); 2] {
    let (pool, mut one, key) = (pool(&CLUSTER.url(), 1), connection().await, fresh_key());
    let table = parent();
    let pooled = pool.locked_transaction(key, patient(), async |tx| body(tx, table.clone(), does).await);
    let pooled = (pooled.await, count(&table));
    assert!(is_free(key), "{does:?}");
    is_clean(&pool).await;
    let table = parent();
    let lent = one.locked_transaction(key, patient(), async |tx| body(tx, table.clone(), does).await);
    let lent = (lent.await, count(&table));
    assert!(is_free(key), "{does:?}");
    assert_eq!(left(&mut one).await, 0);
    [pooled, lent]
}

#[tokio::test]
async fn a_body_that_fails_is_rolled_back_and_its_error_is_its_own() {
    for (ended, stored) in ends(Does::Fail).await {
        let error = ended.unwrap_err().into_body().unwrap();
        assert_eq!(error.as_database_error().unwrap().code().unwrap(), "22012");
        assert_eq!(stored, "0");
    }
}

#[tokio::test]
async fn an_error_that_a_body_swallows_is_not_reported_as_committed() {
    for (ended, stored) in ends(Does::Swallow).await {
        assert!(matches!(ended, Err(LockedError::Aborted(_))), "{ended:?}");
        assert_eq!(stored, "0");
    }
}

#[tokio::test]
async fn a_commit_that_the_server_refuses_is_not_reported_as_committed() {
    for (ended, stored) in ends(Does::LeaveUnchecked).await {
        let Err(LockedError::Aborted(cause)) = ended else {
            panic!("{ended:?}")
        };
        assert!(cause.to_string().contains("foreign key"), "{cause}");
        assert_eq!(stored, "0");
    }
}

#[tokio::test]
async fn a_body_that_ends_the_transaction_itself_is_not_reported_as_committed() {
    for (does, kept) in [(Does::Commit, "1"), (Does::RollBack, "0"), (Does::CommitAndBegin, "1")] {
        for (ended, stored) in ends(does).await {
            assert!(
                matches!(ended, Err(LockedError::OutcomeUnknown(_))),
                "{does:?}: {ended:?}"
            );
            assert_eq!(stored, kept, "{does:?}");
        }
    }
}

#[tokio::test]
async fn a_panic_goes_on_and_rolls_back() {
    let (pool, mut one, key, table) = (pool(&CLUSTER.url(), 1), connection().await, fresh_key(), counter());
    let pooled = pool.locked_transaction(key, patient(), async |tx| {
        count_one(tx, &table).await?;
        if count(&table) == "0" {
            panic!("as the test wants");
        }
        Ok::<_, sqlx::Error>(())
    });
    assert!(AssertUnwindSafe(pooled).catch_unwind().await.is_err());
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
    let lent = one.locked_transaction(key, patient(), async |tx| {
        count_one(tx, &table).await?;
        if count(&table) == "0" {
            panic!("as the test wants");
        }
        Ok::<_, sqlx::Error>(())
    });
    assert!(AssertUnwindSafe(lent).catch_unwind().await.is_err());
    // Before the connection is used again.
    becomes(key, (0, 0)).await;
    assert_eq!(left(&mut one).await, 0);
    assert_eq!(count(&table), "0");
}

#[tokio::test]
async fn savepoints_of_a_body_are_its_own() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), counter());
    let work = pool.locked_transaction(key, patient(), async |tx| {
        let mut kept = tx.begin().await?;
        count_one(&mut kept, &table).await?;
        kept.commit().await?;
        let mut undone = tx.begin().await?;
        run(&mut undone, "SELECT 1/0".to_owned()).await.unwrap_err();
        undone.rollback().await?;
        // Left to be rolled back.
        let mut dropped = tx.begin().await?;
        count_one(&mut dropped, &table).await?;
        Ok::<_, sqlx::Error>(())
    });
    work.await.unwrap();
    assert_eq!(count(&table), "1");
    is_clean(&pool).await;
}
