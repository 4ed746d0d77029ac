//! What is committed, what is rolled back, and what is said of it.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt as _;
use latchwork_core::xact::{KeySet, LockedError, XactLockError};

use super::{
    BRIEF, Body, CLUSTER, Failure, PATIENT, body,
    body::{count_one, holds},
    fresh_key, never,
    trial::{Trial, refusal},
};
use crate::onlooker::chain;

promises! {
    everywhere:
        a_body_runs_under_its_lock_and_is_committed,
        a_body_that_fails_is_rolled_back_and_its_error_is_its_own,
        an_error_that_a_body_swallows_is_not_reported_as_committed,
        a_commit_that_the_server_refuses_is_not_reported_as_committed,
        a_body_that_ends_the_transaction_itself_is_not_reported_as_committed,
        a_panic_goes_on_and_rolls_back,
        who_loses_does_not_run;
    directly: no_failure_of_a_body_makes_the_server_warn
}

/// Runs statements on a table, and does not say so if one fails.
fn does(table: &str, statements: &[&str]) -> Body {
    let statements = statements.join(";").replace("TABLE", table);
    let table = table.to_owned();
    body(async move |tx| {
        count_one(tx, &table).await?;
        drop(tx.run(&statements).await);
        Ok(())
    })
}

type Ended = Result<(), LockedError<Failure>>;

/// How a body ends that does this to a table, and what is stored there; both by waiting and by a try.
async fn ends(trial: &Trial, statements: &[&str], is_free_at_once: bool) -> [(Ended, i64); 2] {
    let library = trial.pool(1);
    let mut both = Vec::new();
    for waits in [true, false] {
        let (key, table) = (fresh_key(), trial.counter().await);
        let does = does(&table, statements);
        let ended = if waits {
            library.locked(key.into(), PATIENT, does).await
        } else {
            library.tried(key.into(), does).await.map(|ran| assert!(ran))
        };
        if is_free_at_once {
            assert_eq!(trial.seen(key).await, (0, 0));
        }
        // One whose state is not known is closed.
        trial.becomes(key, (0, 0)).await;
        trial.is_clean(&*library).await;
        both.push((ended, trial.count(&table).await));
    }
    both.try_into().unwrap()
}

async fn a_body_runs_under_its_lock_and_is_committed(trial: Arc<Trial>) {
    let (library, table) = (trial.pool(1), trial.counter().await);
    for (options, mode) in [(PATIENT, "ExclusiveLock"), (PATIENT.shared(), "ShareLock")] {
        let (keys, counts) = ([fresh_key(), fresh_key()], table.clone());
        let has_both = format!(
            "(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' \
             AND mode = '{mode}') = 2"
        );
        let counts = body(async move |tx| {
            holds(tx, &has_both).await?;
            count_one(tx, &counts).await
        });
        library.locked(keys.into(), options, counts).await.unwrap();
        for key in keys {
            assert_eq!(trial.seen(key).await, (0, 0));
        }
        trial.is_clean(&*library).await;
    }
    assert_eq!(trial.count(&table).await, 2);
}

async fn a_body_that_fails_is_rolled_back_and_its_error_is_its_own(trial: Arc<Trial>) {
    let (library, key, table) = (trial.pool(1), fresh_key(), trial.counter().await);
    let counts = table.clone();
    let whim = body(async move |tx| {
        count_one(tx, &counts).await?;
        Err(Failure::Whim("its own"))
    });
    let by_sql = body(async |tx| tx.run("SELECT 1/0").await);
    for (fails, says) in [(whim, "its own"), (by_sql, "division by zero")] {
        let ended = library.locked(key.into(), PATIENT, fails.clone()).await;
        assert_eq!(trial.seen(key).await, (0, 0));
        let error = ended.unwrap_err().into_body().unwrap();
        assert!(chain(&error).contains(says), "{error:?}");
        trial.is_clean(&*library).await;
        let error = library.tried(key.into(), fails).await.unwrap_err().into_body().unwrap();
        assert!(chain(&error).contains(says), "{error:?}");
        trial.is_clean(&*library).await;
    }
    assert_eq!(trial.count(&table).await, 0);
}

async fn an_error_that_a_body_swallows_is_not_reported_as_committed(trial: Arc<Trial>) {
    for (ended, stored) in ends(&trial, &["SELECT 1/0"], true).await {
        assert!(matches!(ended, Err(LockedError::Aborted(_))), "{ended:?}");
        assert_eq!(stored, 0);
    }
}

async fn a_commit_that_the_server_refuses_is_not_reported_as_committed(trial: Arc<Trial>) {
    for (ended, stored) in ends(&trial, &["INSERT INTO TABLE VALUES (1)"], true).await {
        let Err(LockedError::Aborted(cause)) = ended else {
            panic!("{ended:?}")
        };
        assert!(chain(&*cause).contains("duplicate key"), "{cause:?}");
        assert_eq!(stored, 0);
    }
}

async fn a_body_that_ends_the_transaction_itself_is_not_reported_as_committed(trial: Arc<Trial>) {
    for (statements, kept) in [
        (["COMMIT", "SELECT 1"], 1),
        (["ROLLBACK", "SELECT 1"], 0),
        (["COMMIT", "BEGIN"], 1),
        (["ROLLBACK", "BEGIN"], 0),
        (["COMMIT AND CHAIN", "SELECT 1"], 1),
        (["ROLLBACK AND CHAIN", "SELECT 1"], 0),
    ] {
        for (ended, stored) in ends(&trial, &statements, false).await {
            assert!(
                matches!(ended, Err(LockedError::OutcomeUnknown(_))),
                "{statements:?}: {ended:?}"
            );
            assert_eq!(stored, kept, "{statements:?}");
        }
    }
}

async fn a_panic_goes_on_and_rolls_back(trial: Arc<Trial>) {
    let (library, key, table) = (trial.pool(1), fresh_key(), trial.counter().await);
    let counts = table.clone();
    let panics = body(async move |tx| {
        count_one(tx, &counts).await?;
        panic!("as the test wants")
    });
    let ended = AssertUnwindSafe(library.locked(key.into(), PATIENT, panics));
    let panic = ended.catch_unwind().await.unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"as the test wants"));
    // Before the connection is used again.
    trial.becomes(key, (0, 0)).await;
    trial.is_clean(&*library).await;
    assert_eq!(trial.count(&table).await, 0);
}

async fn who_loses_does_not_run(trial: Arc<Trial>) {
    let (library, keys) = (trial.pool(1), [fresh_key(), fresh_key()]);
    let holder = trial.holder(keys[1]).await;
    assert!(!library.tried(keys.into(), never()).await.unwrap());
    trial.is_clean(&*library).await;
    for options in [BRIEF, BRIEF.shared()] {
        let late = refusal(library.locked(keys.into(), options, never()).await);
        let all = KeySet::from(keys);
        assert!(
            matches!(&late, XactLockError::TimedOut { keys, .. } if keys == &all),
            "{late:?}"
        );
        trial.is_clean(&*library).await;
        assert_eq!(trial.seen(keys[0]).await, (0, 0));
    }
    holder.end().await;
    let runs = body(async |_| Ok(()));
    assert!(library.tried(keys.into(), runs).await.unwrap());
    trial.is_clean(&*library).await;
}

/// What a library rolls back is there, so that the server has nothing to warn of.
async fn no_failure_of_a_body_makes_the_server_warn(trial: Arc<Trial>) {
    for statements in ["INSERT INTO TABLE VALUES (1)", "SELECT 1/0"] {
        drop(ends(&trial, &[statements], true).await);
    }
    let log = CLUSTER.log();
    assert!(!log.contains("WARNING:") && !log.contains("FATAL:"), "{log}");
}
