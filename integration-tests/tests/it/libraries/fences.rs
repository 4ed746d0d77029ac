//! Transactions that prove the fence of a lock of session scope.

use std::{sync::Arc, time::Duration};

use latchwork_core::{
    Key, Mode,
    fence::Fence,
    xact::{FencedLimits, LockedError, XactLockError},
};
use tokio::sync::{Mutex, oneshot};

use super::{
    CLUSTER, Failure, LONG, Library, MOMENT, body,
    body::{count_one, holds},
    fresh_key, idle, in_time, never,
    trial::{Trial, refusal},
};
use crate::onlooker::{Onlooker, connect, quick};

promises! {
    everywhere:
        a_grant_in_force_is_proved_and_one_that_is_over_is_refused_before_the_body,
        the_next_grant_waits_until_a_fenced_transaction_has_ended,
        a_grant_that_is_being_made_is_waited_for_within_the_limit,
        one_that_is_idle_for_too_long_is_ended_and_nothing_is_stored,
        the_limits_are_the_transactions_own;
    directly:
}

const LIMITS: fn() -> FencedLimits = FencedLimits::default;

/// What the transactions of a fence's holders share, and a new grant needs.
fn transactions_key(fence: &Fence) -> Key {
    Fence::transactions_key(fence.key(), fence.mode())
}

/// A session that has what a holder of a fenced lock has, until it is dropped.
pub(super) async fn grant(fence: &Fence) -> Onlooker {
    let session = Onlooker::new(&CLUSTER.url()).await;
    let shared = if fence.mode() == Mode::Shared { "_shared" } else { "" };
    let take = format!(
        "SELECT pg_advisory_lock{shared}({}); SELECT pg_advisory_lock({})",
        fence.key().sql_arguments(),
        fence.grant_key().sql_arguments()
    );
    session.value(&take).await;
    session
}

async fn refuses(trial: &Trial, library: &dyn Library, fence: &Fence) {
    let refused = refusal(library.fenced(*fence, LIMITS(), LONG, never()).await);
    assert!(
        matches!(refused, XactLockError::Superseded { key } if key == fence.key()),
        "{refused:?}"
    );
    trial.is_clean(library).await;
}

async fn a_grant_in_force_is_proved_and_one_that_is_over_is_refused_before_the_body(trial: Arc<Trial>) {
    let (library, table) = (trial.pool(1), trial.counter().await);
    let locks = connect(&CLUSTER.url(), quick()).await.locks();
    for mode in [Mode::Exclusive, Mode::Shared] {
        let key = fresh_key();
        let acquire = || match mode {
            Mode::Shared => locks.acquire_fenced(key).shared().within(LONG),
            _ => locks.acquire_fenced(key).within(LONG),
        };
        let guard = acquire().await.unwrap();
        let fence = guard.fence();
        let counts = |fence: &Fence| {
            let (sees, counts, shared) = (Arc::clone(&trial), table.clone(), transactions_key(fence));
            body(async move |tx| {
                // The proof stays until the transaction ends.
                assert_eq!(sees.seen(shared).await, (1, 0));
                count_one(tx, &counts).await
            })
        };
        let done = library.fenced(fence, LIMITS(), LONG, counts(&fence));
        done.await.unwrap();
        assert_eq!(trial.seen(transactions_key(&fence)).await, (0, 0));
        trial.is_clean(&*library).await;

        guard.release().await.unwrap();
        refuses(&trial, &*library, &fence).await;
        let next = acquire().await.unwrap();
        refuses(&trial, &*library, &fence).await;
        let fence = next.fence();
        library.fenced(fence, LIMITS(), LONG, counts(&fence)).await.unwrap();
        next.release().await.unwrap();
    }
    assert_eq!(trial.count(&table).await, 4);
    locks.close().await;
}

async fn the_next_grant_waits_until_a_fenced_transaction_has_ended(trial: Arc<Trial>) {
    let (library, key) = (trial.pool(1), fresh_key());
    let locks = connect(&CLUSTER.url(), quick()).await.locks();
    let guard = locks.acquire_fenced(key).within(LONG).await.unwrap();
    let fence = guard.fence();
    let (over, is_over) = oneshot::channel();
    let (ends, sees, shared) = (
        Arc::new(Mutex::new(Some((guard, over)))),
        Arc::clone(&trial),
        transactions_key(&fence),
    );
    let releases = body(async move |_| {
        let (guard, over) = ends.lock().await.take().unwrap();
        guard.release().await.unwrap();
        over.send(()).unwrap();
        sees.becomes(shared, (1, 1)).await;
        Ok(())
    });
    let (done, next) = tokio::join!(library.fenced(fence, LIMITS(), LONG, releases), async {
        is_over.await.unwrap();
        locks.acquire_fenced(key).within(LONG).await
    });
    done.unwrap();
    next.unwrap().release().await.unwrap();
    locks.close().await;
}

/// It drains what an earlier holder runs.
async fn a_grant_that_is_being_made_is_waited_for_within_the_limit(trial: Arc<Trial>) {
    let library = trial.pool(1);
    let fence = Fence::fresh(fresh_key(), Mode::Exclusive);
    let _session = grant(&fence).await;
    let shared = transactions_key(&fence);
    let drains = trial.holder(shared).await;
    let late = library.fenced(fence, LIMITS(), MOMENT, never()).await;
    assert!(late.unwrap_err().is_timeout());
    trial.is_clean(&*library).await;
    let (done, ()) = tokio::join!(in_time(library.fenced(fence, LIMITS(), LONG, idle())), async {
        trial.becomes(shared, (1, 1)).await;
        drains.end().await;
    });
    done.unwrap().unwrap();
}

async fn one_that_is_idle_for_too_long_is_ended_and_nothing_is_stored(trial: Arc<Trial>) {
    let (library, table) = (trial.pool(1), trial.counter().await);
    let fence = Fence::fresh(fresh_key(), Mode::Exclusive);
    let _session = grant(&fence).await;
    let (sees, counts, shared) = (Arc::clone(&trial), table.clone(), transactions_key(&fence));
    let pauses = body(async move |tx| {
        count_one(tx, &counts).await?;
        sees.becomes(shared, (0, 0)).await;
        Ok(())
    });
    let brief = LIMITS().with_idle(Duration::from_millis(500));
    let paused = library.fenced(fence, brief, LONG, pauses).await;
    assert!(
        matches!(paused, Err(LockedError::Aborted(_) | LockedError::OutcomeUnknown(_))),
        "{paused:?}"
    );
    assert_eq!(trial.count(&table).await, 0);
    trial.is_clean(&*library).await;
}

async fn the_limits_are_the_transactions_own(trial: Arc<Trial>) {
    let library = trial.pool(1);
    let fence = Fence::fresh(fresh_key(), Mode::Exclusive);
    let _session = grant(&fence).await;
    let limit_is = |limit: &'static str| {
        body(async move |tx| -> Result<(), Failure> {
            let is = format!("current_setting('idle_in_transaction_session_timeout') = '{limit}'");
            holds(tx, &is).await
        })
    };
    library.fenced(fence, LIMITS(), LONG, limit_is("15s")).await.unwrap();
    library.plain(limit_is("0")).await.unwrap();
    trial.is_clean(&*library).await;
}
