//! Waits of a transaction that end without a lock, and what they leave as it was.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use latchwork_core::xact::{KeySet, XactLockError, XactOptions};
use tokio::sync::Barrier;

use super::{
    BRIEF, Failure, LONG, MOMENT, PATIENT, body,
    body::{count_one, holds},
    fresh_key, in_time,
    trial::Trial,
};

promises! {
    everywhere:
        a_limit_that_runs_out_leaves_the_transaction_and_its_lock_timeout_as_they_were,
        a_grant_that_was_waited_for_leaves_the_lock_timeout_as_it_was,
        a_wait_that_the_server_cancels_leaves_the_transaction_usable,
        outside_of_a_transaction_nothing_is_locked,
        an_aborted_transaction_says_so,
        a_deadlock_says_so;
    directly: limits_that_run_out_leave_the_servers_log_empty
}

async fn a_limit_that_runs_out_leaves_the_transaction_and_its_lock_timeout_as_they_were(trial: Arc<Trial>) {
    let (library, table) = (trial.pool(1), trial.counter().await);
    let (taken, free) = (fresh_key(), fresh_key());
    let holder = trial.holder(taken).await;
    let expired = KeySet::from([free, taken]);
    for (set, expected) in [
        ("SELECT 1", "0"),
        ("SET LOCAL lock_timeout = '7s'", "7s"),
        ("SET LOCAL lock_timeout = 1", "1ms"),
    ] {
        let is_as_before = format!("current_setting('lock_timeout') = '{expected}'");
        let (counts, expired) = (table.clone(), expired.clone());
        let waits = body(async move |tx| {
            tx.run(set).await?;
            for limit in [
                MOMENT,
                Duration::ZERO,
                Duration::from_nanos(1),
                Duration::from_micros(300),
            ] {
                for keys in [&KeySet::from(taken), &expired] {
                    let begun = Instant::now();
                    let late = tx.lock(keys.clone(), XactOptions::within(limit)).await.unwrap_err();
                    assert!(begun.elapsed() >= limit && late.leaves_transaction_usable());
                    let is_told = matches!(&late, XactLockError::TimedOut { keys: told, limit: over } if told == keys && *over == limit);
                    assert!(is_told, "{late:?}");
                    holds(tx, &is_as_before).await?;
                }
            }
            holds(
                tx,
                "NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())",
            )
            .await?;
            for limit in [Duration::ZERO, Duration::from_nanos(1), LONG] {
                tx.lock(free.into(), XactOptions::within(limit)).await?;
                holds(tx, &is_as_before).await?;
            }
            count_one(tx, &counts).await
        });
        library.plain(waits).await.unwrap();
    }
    assert_eq!(trial.count(&table).await, 3);
    trial.is_clean(&*library).await;
    holder.end().await;
}

/// But for diesel, which asks for a lock with BEGIN: a message that cannot fail in part.
async fn limits_that_run_out_leave_the_servers_log_empty(trial: Arc<Trial>) {
    let (library, key) = (trial.pool(1), fresh_key());
    if library.blocks() {
        return;
    }
    let holder = trial.holder(key).await;
    for keys in [KeySet::from(key), KeySet::from([key, fresh_key()])] {
        let late = library.locked(keys.clone(), BRIEF, super::never()).await.unwrap_err();
        assert!(late.is_timeout(), "{late:?}");
        assert!(!library.tried(keys.clone(), super::never()).await.unwrap());
        let waits = body(async move |tx| {
            let late = tx.lock(keys.clone(), BRIEF).await.unwrap_err();
            assert!(late.is_timeout(), "{late:?}");
            Ok(())
        });
        library.plain(waits).await.unwrap();
    }
    holder.end().await;
    for fails in [false, true] {
        let ends = body(async move |_| if fails { Err(Failure::Whim("no")) } else { Ok(()) });
        let ended = library.locked(key.into(), PATIENT, ends).await;
        assert_eq!(ended.is_err(), fails);
    }
    crate::onlooker::assert_quiet(&super::CLUSTER);
}

async fn a_grant_that_was_waited_for_leaves_the_lock_timeout_as_it_was(trial: Arc<Trial>) {
    let library = trial.pool(1);
    for options in [PATIENT, XactOptions::without_limit(), PATIENT.shared()] {
        let key = fresh_key();
        let holder = trial.holder(key).await;
        let waits = body(async move |tx| {
            tx.run("SET LOCAL lock_timeout = '4321ms'").await?;
            tx.lock(key.into(), options.clone()).await?;
            holds(tx, "current_setting('lock_timeout') = '4321ms'").await
        });
        let waits = in_time(library.plain(waits));
        let (waited, ()) = tokio::join!(waits, holder.ends_when_waited_for(&trial, key));
        waited.unwrap().unwrap();
    }
    trial.is_clean(&*library).await;
}

async fn a_wait_that_the_server_cancels_leaves_the_transaction_usable(trial: Arc<Trial>) {
    let (library, key, table) = (trial.pool(1), fresh_key(), trial.counter().await);
    let holder = trial.holder(key).await;
    let counts = table.clone();
    let waits = body(async move |tx| {
        let cancelled = tx.lock(key.into(), PATIENT).await.unwrap_err();
        assert!(matches!(cancelled, XactLockError::Cancelled { .. }), "{cancelled:?}");
        tx.run("SET LOCAL statement_timeout = '50ms'").await?;
        let timed_out = tx.lock(key.into(), PATIENT).await.unwrap_err();
        assert!(matches!(timed_out, XactLockError::Cancelled { .. }), "{timed_out:?}");
        tx.run("SET LOCAL statement_timeout = 0").await?;
        count_one(tx, &counts).await
    });
    let (waited, ()) = tokio::join!(library.plain(waits), async {
        trial.becomes(key, (1, 1)).await;
        trial.strikes("pg_cancel_backend", key, false).await;
    });
    waited.unwrap();
    holder.end().await;
    assert_eq!(trial.count(&table).await, 1);
    trial.is_clean(&*library).await;
}

async fn outside_of_a_transaction_nothing_is_locked(trial: Arc<Trial>) {
    let (library, key) = (trial.pool(1), fresh_key());
    if let Some(locking) = library.lock_alone(key) {
        let refused = locking.await;
        assert!(
            matches!(refused, Err(XactLockError::NoTransaction { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(trial.seen(key).await, (0, 0));
    trial.is_clean(&*library).await;
}

async fn an_aborted_transaction_says_so(trial: Arc<Trial>) {
    let library = trial.pool(1);
    for keys in [KeySet::from(fresh_key()), KeySet::from([fresh_key(), fresh_key()])] {
        let locks = body(async move |tx| {
            assert!(tx.run("SELECT 1/0").await.is_err());
            Ok(tx.lock(keys.clone(), PATIENT).await?)
        });
        let refused = library.plain(locks).await;
        assert!(
            matches!(refused, Err(Failure::Lock(XactLockError::Aborted { .. }))),
            "{refused:?}"
        );
        trial.is_clean(&*library).await;
    }
}

/// The victim is rolled back, so that the other can go on.
async fn a_deadlock_says_so(trial: Arc<Trial>) {
    let (library, a, b) = (trial.pool(2), fresh_key(), fresh_key());
    let both = Arc::new(Barrier::new(2));
    let crosses = |mine, other| {
        let both = Arc::clone(&both);
        let locks = body(async move |tx| {
            tx.lock(KeySet::from(mine), PATIENT).await?;
            both.wait().await;
            Ok(tx.lock(KeySet::from(other), XactOptions::within(LONG)).await?)
        });
        in_time(library.plain(locks))
    };
    let (one, two) = tokio::join!(crosses(a, b), crosses(b, a));
    match (one.unwrap(), two.unwrap()) {
        (Ok(()), Err(Failure::Lock(error))) | (Err(Failure::Lock(error)), Ok(())) => {
            assert!(matches!(error, XactLockError::Deadlock { .. }), "{error:?}");
        }
        both => panic!("{both:?}"),
    }
    trial.becomes(a, (0, 0)).await;
    trial.becomes(b, (0, 0)).await;
}
