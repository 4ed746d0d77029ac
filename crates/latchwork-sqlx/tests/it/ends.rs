//! How transactions end on a connection that the caller has.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use latchwork_core::Mode;
use latchwork_sqlx::{Fence, FencedLimits, LockedError, LockedTransactionExt as _, XactLockError};
use sqlx::{Acquire as _, PgTransaction};

use crate::support::{
    CLUSTER, LONG, becomes, connection, count, count_one, counter, fresh_key, is_clean, is_free, left, patient, pool,
    run,
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

/// How it ends; the connection is without the lock and in no transaction afterwards.
async fn ends(does: Does) -> (Ended, String) {
    let (mut one, key, table) = (connection().await, fresh_key(), parent());
    let ended = one.locked_transaction(key, patient(), async |tx| body(tx, table.clone(), does).await);
    let ended = ended.await;
    assert!(is_free(key), "{does:?}");
    assert_eq!(left(&mut one).await, 0);
    (ended, count(&table))
}

#[tokio::test]
async fn what_is_not_committed_is_not_reported_as_committed() {
    type Says = fn(&LockedError<sqlx::Error>) -> bool;
    let is_unknown: Says = |error| matches!(error, LockedError::OutcomeUnknown(_));
    let is_refused: Says =
        |error| matches!(error, LockedError::Aborted(cause) if cause.to_string().contains("foreign key"));
    for (does, says, stored) in [
        (Does::Fail, (|error| matches!(error, LockedError::Body(_))) as Says, "0"),
        (Does::Swallow, |error| matches!(error, LockedError::Aborted(_)), "0"),
        (Does::LeaveUnchecked, is_refused, "0"),
        (Does::Commit, is_unknown, "1"),
        (Does::RollBack, is_unknown, "0"),
        (Does::CommitAndBegin, is_unknown, "1"),
    ] {
        let (ended, kept) = ends(does).await;
        assert!(ended.as_ref().is_err_and(says), "{does:?}: {ended:?}");
        assert_eq!(kept, stored, "{does:?}");
    }
}

#[tokio::test]
async fn a_panic_goes_on_and_rolls_back() {
    let (mut one, key, table) = (connection().await, fresh_key(), counter());
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
async fn a_fence_that_is_not_in_force_is_refused_before_the_body() {
    let (mut one, key) = (connection().await, fresh_key());
    let fence = Fence::fresh(key, Mode::Exclusive);
    let never = async |_: &mut PgTransaction<'_>| -> sqlx::Result<()> { panic!("the grant is over") };
    let refused = one
        .fenced_transaction(&fence, FencedLimits::default(), LONG, never)
        .await;
    assert!(
        matches!(refused, Err(LockedError::Lock(XactLockError::Superseded { key: over })) if over == key),
        "{refused:?}"
    );
    assert_eq!(left(&mut one).await, 0);
}

/// Left to be rolled back.
#[tokio::test]
async fn a_savepoint_that_a_body_has_dropped_is_rolled_back() {
    let (pool, table) = (pool(&CLUSTER.url(), 1), counter());
    let work = pool.locked_transaction(fresh_key(), patient(), async |tx| {
        let mut kept = tx.begin().await?;
        count_one(&mut kept, &table).await?;
        kept.commit().await?;
        let mut dropped = tx.begin().await?;
        count_one(&mut dropped, &table).await?;
        Ok::<_, sqlx::Error>(())
    });
    work.await.unwrap();
    assert_eq!(count(&table), "1");
    is_clean(&pool).await;
}
