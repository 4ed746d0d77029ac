//! What is committed, what is rolled back, and what is said of it.

use std::panic::AssertUnwindSafe;

use diesel::{QueryResult, result::Error};
use diesel_async::{AnsiTransactionManager, AsyncConnection as _, AsyncPgConnection, TransactionManager as _};
use futures_util::FutureExt as _;
use latchwork_diesel_async::{LockedError, LockedTransactionExt};

use crate::support::{
    Bb8, CLUSTER, Deadpool, TestPool, becomes, connection, count, count_one, counter, fresh_key, is_clean, is_free,
    left, patient, polled, pool, run,
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

/// How it ends, on pools and on a connection; each is without the lock and in no transaction afterwards.
async fn ends(does: Does) -> [(Ended, String); 3] {
    let (pool, bb8, mut one) = (pool(&CLUSTER.url(), 1), Bb8::of(&CLUSTER.url(), 1), connection().await);
    let key = fresh_key();
    let table = parent();
    let pooled = pool.locked_transaction(key, patient(), async |tx| body(tx, table.clone(), does).await);
    let pooled = (pooled.await, count(&table));
    // One whose state is not known is closed.
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
    let table = parent();
    let other = bb8.locked_transaction(key, patient(), async |tx| body(tx, table.clone(), does).await);
    let other = (other.await, count(&table));
    becomes(key, (0, 0)).await;
    is_clean(&bb8).await;
    let table = parent();
    let lent = one.locked_transaction(key, patient(), async |tx| body(tx, table.clone(), does).await);
    let lent = (lent.await, count(&table));
    assert!(is_free(key), "{does:?}");
    assert_eq!(left(&mut one).await, 0);
    one.transaction(async |_| QueryResult::Ok(())).await.unwrap();
    [pooled, other, lent]
}

#[tokio::test]
async fn a_body_that_fails_is_rolled_back_and_its_error_is_its_own() {
    for (ended, stored) in ends(Does::Fail).await {
        let error = ended.unwrap_err().into_body().unwrap();
        assert_eq!(error.to_string(), "division by zero");
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
    for (does, kept) in [
        (Does::Commit, "1"),
        (Does::CommitByDiesel, "1"),
        (Does::RollBack, "0"),
        (Does::CommitAndBegin, "1"),
    ] {
        for (ended, stored) in ends(does).await {
            assert!(
                matches!(ended, Err(LockedError::OutcomeUnknown(_))),
                "{does:?}: {ended:?}"
            );
            assert_eq!(stored, kept, "{does:?}");
        }
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

/// Whoever drops a transaction midway does not mean it to be stored, and diesel-async does not roll it back.
#[tokio::test]
async fn a_nested_transaction_that_is_dropped_midway_is_not_committed() {
    for (ended, stored) in ends(Does::DropNested).await {
        assert!(matches!(ended, Err(LockedError::Aborted(_))), "{ended:?}");
        assert_eq!(stored, "0");
    }
}

#[tokio::test]
async fn a_panic_goes_on_and_rolls_back() {
    let (pool, mut one, key, table) = (pool(&CLUSTER.url(), 1), connection().await, fresh_key(), counter());
    let body = async |tx: &mut AsyncPgConnection| {
        count_one(tx, &table).await?;
        if count(&table) == "0" {
            panic!("as the test wants");
        }
        Ok::<_, Error>(())
    };
    let pooled = pool.locked_transaction(key, patient(), body);
    assert!(AssertUnwindSafe(pooled).catch_unwind().await.is_err());
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
    let lent = one.locked_transaction(key, patient(), body);
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
        tx.transaction(async |tx| count_one(tx, &table).await).await?;
        let undone = tx.transaction(async |tx| {
            count_one(tx, &table).await?;
            run(tx, "SELECT 1/0".to_owned()).await
        });
        undone.await.unwrap_err();
        count_one(tx, &table).await
    });
    work.await.unwrap();
    assert_eq!(count(&table), "2");
    is_clean(&pool).await;
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
