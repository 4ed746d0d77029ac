//! How transactions end on a connection that the caller has, and what else diesel-async shows of an end.

use std::panic::AssertUnwindSafe;

use diesel::{QueryResult, result::Error};
use diesel_async::{AnsiTransactionManager, AsyncConnection as _, AsyncPgConnection, TransactionManager as _};
use futures_util::FutureExt as _;
use latchwork_core::Mode;
use latchwork_diesel_async::{Fence, FencedLimits, LockedError, LockedTransactionExt, XactLockError};

use crate::support::{
    Bb8, CLUSTER, Deadpool, LONG, TestPool, becomes, connection, count, count_one, counter, fresh_key, is_clean,
    is_free, left, patient, polled, pool, run,
};

type Ended = Result<(), LockedError<Error>>;

/// What a body does to a table before it returns Ok, or does not.
#[derive(Clone, Copy, Debug)]
enum Does {
    Fail,
    Swallow,
    LeaveUnchecked,
    Commit,
    CommitByDiesel,
    RollBack,
    CommitAndBegin,
    DropNested,
}

async fn body(tx: &mut AsyncPgConnection, table: String, does: Does) -> QueryResult<()> {
    count_one(tx, &table).await?;
    match does {
        Does::Fail => run(tx, "SELECT 1/0".to_owned()).await,
        Does::Swallow => {
            run(tx, "SELECT 1/0".to_owned()).await.unwrap_err();
            Ok(())
        }
        Does::LeaveUnchecked => run(tx, format!("INSERT INTO {table}_child VALUES (404)")).await,
        Does::Commit => run(tx, "COMMIT".to_owned()).await,
        Does::CommitByDiesel => AnsiTransactionManager::commit_transaction(tx).await,
        Does::RollBack => run(tx, "ROLLBACK".to_owned()).await,
        Does::CommitAndBegin => run(tx, "COMMIT; BEGIN".to_owned()).await,
        Does::DropNested => {
            let nested = tx.transaction(async |tx| {
                count_one(tx, &table).await?;
                std::future::pending::<QueryResult<()>>().await
            });
            tokio::select! {
                biased;
                ended = nested => ended,
                () = counted(&table) => Ok(()),
            }
        }
    }
}

/// Waits until the server has a second change of a table in a transaction that is not committed.
async fn counted(table: &str) {
    let asked = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE 'UPDATE {table} SET n = 2'"
    );
    crate::support::answers(asked, "1").await;
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
    one.transaction(async |_| QueryResult::Ok(())).await.unwrap();
    (ended, count(&table))
}

#[tokio::test]
async fn what_is_not_committed_is_not_reported_as_committed() {
    type Says = fn(&LockedError<Error>) -> bool;
    let is_unknown: Says = |error| matches!(error, LockedError::OutcomeUnknown(_));
    let is_refused: Says =
        |error| matches!(error, LockedError::Aborted(cause) if cause.to_string().contains("foreign key"));
    for (does, says, stored) in [
        (Does::Fail, (|error| matches!(error, LockedError::Body(_))) as Says, "0"),
        (Does::Swallow, |error| matches!(error, LockedError::Aborted(_)), "0"),
        (Does::LeaveUnchecked, is_refused, "0"),
        (Does::Commit, is_unknown, "1"),
        (Does::CommitByDiesel, is_unknown, "1"),
        (Does::RollBack, is_unknown, "0"),
        (Does::CommitAndBegin, is_unknown, "1"),
        // Whoever drops a transaction midway does not mean it to be stored, and diesel-async does not roll it back.
        (Does::DropNested, |error| matches!(error, LockedError::Aborted(_)), "0"),
    ] {
        let (ended, kept) = ends(does).await;
        assert!(ended.as_ref().is_err_and(says), "{does:?}: {ended:?}");
        assert_eq!(kept, stored, "{does:?}");
    }
}

/// Nobody can say what else a body has done to a connection on which it ended our transaction.
#[tokio::test]
async fn a_connection_whose_transaction_a_body_has_ended_does_not_go_back_to_its_pool() {
    async fn is_closed<P: TestPool>()
    where
        for<'p> &'p P: LockedTransactionExt,
    {
        let (pool, table) = (P::of(&CLUSTER.url(), 1), parent());
        for (does, idle) in [(Does::Fail, 1), (Does::Commit, 0)] {
            let ended =
                (&pool).locked_transaction(fresh_key(), patient(), async |tx| body(tx, table.clone(), does).await);
            ended.await.unwrap_err();
            assert_eq!(pool.idle(), idle, "{does:?}");
        }
        is_clean(&pool).await;
    }
    is_closed::<Deadpool>().await;
    is_closed::<Bb8>().await;
}

async fn drops_a_nested_one<P: TestPool>()
where
    for<'p> &'p P: LockedTransactionExt,
{
    let (pool, table) = (P::of(&CLUSTER.url(), 1), parent());
    for (does, says) in [(Does::DropNested, "Aborted"), (Does::CommitByDiesel, "OutcomeUnknown")] {
        let ended = (&pool).locked_transaction(fresh_key(), patient(), async |tx| body(tx, table.clone(), does).await);
        let ended = format!("{:?}", ended.await.unwrap_err());
        assert!(ended.starts_with(says), "{does:?}: {ended}");
        is_clean(&pool).await;
        assert_eq!(count(&table), if says == "Aborted" { "0" } else { "1" });
    }
}

#[tokio::test]
async fn a_nested_transaction_that_is_dropped_midway_is_not_committed() {
    drops_a_nested_one::<Deadpool>().await;
    drops_a_nested_one::<Bb8>().await;
}

#[tokio::test]
async fn a_panic_goes_on_and_rolls_back() {
    let (mut one, key, table) = (connection().await, fresh_key(), counter());
    let body = async |tx: &mut AsyncPgConnection| {
        count_one(tx, &table).await?;
        if count(&table) == "0" {
            panic!("as the test wants");
        }
        Ok::<_, Error>(())
    };
    let lent = one.locked_transaction(key, patient(), body);
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
    let never = async |_: &mut AsyncPgConnection| -> QueryResult<()> { panic!("the grant is over") };
    let refused = one
        .fenced_transaction(&fence, FencedLimits::default(), LONG, never)
        .await;
    assert!(
        matches!(refused, Err(LockedError::Lock(XactLockError::Superseded { key: over })) if over == key),
        "{refused:?}"
    );
    assert_eq!(left(&mut one).await, 0);
}

/// One that is dropped before it has sent anything has begun nothing.
#[tokio::test]
async fn a_body_may_drop_a_nested_transaction_that_it_never_began() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), counter());
    let work = pool.locked_transaction(key, patient(), async |tx| {
        let nested = tx.transaction(async |tx| count_one(tx, &table).await);
        assert!(polled(0, nested).await.is_none());
        count_one(tx, &table).await
    });
    work.await.unwrap();
    assert_eq!(count(&table), "1");
}
