//! Sessions that end on the server's side, and servers that say nothing.

use std::sync::Arc;

use latchwork_core::{
    Key,
    xact::{LockedError, XactLockError},
};
use latchwork_harness::Proxy;

use super::{
    CLUSTER, Failure, PATIENT, body,
    body::count_one,
    fresh_key, in_time, never,
    trial::{Trial, refusal},
};

promises! {
    everywhere:
        a_session_that_ends_while_it_waits_is_a_lost_connection,
        a_session_that_ends_in_the_body_has_stored_nothing,
        a_session_that_ends_in_commit_is_an_outcome_that_is_not_known;
    directly:
        an_answer_to_commit_that_is_lost_is_an_outcome_that_is_not_known,
        a_silent_server_is_given_up
}

async fn kills_the_waiter(trial: &Trial, key: Key) {
    trial.becomes(key, (1, 1)).await;
    trial.strikes("pg_terminate_backend", key, false).await;
}

async fn a_session_that_ends_while_it_waits_is_a_lost_connection(trial: Arc<Trial>) {
    let (library, key) = (trial.pool(1), fresh_key());
    let holder = trial.holder(key).await;
    let (waited, ()) = tokio::join!(
        library.locked(key.into(), PATIENT, never()),
        kills_the_waiter(&trial, key)
    );
    let lost = refusal(waited);
    assert!(matches!(lost, XactLockError::ConnectionLost { .. }), "{lost:?}");
    trial.is_clean(&*library).await;

    let waits = body(async move |tx| {
        let lost = tx.lock(key.into(), PATIENT).await.unwrap_err();
        assert!(matches!(lost, XactLockError::ConnectionLost { .. }), "{lost:?}");
        Err(Failure::Lock(lost))
    });
    let (waited, ()) = tokio::join!(library.plain(waits), kills_the_waiter(&trial, key));
    waited.unwrap_err();
    holder.end().await;
    trial.becomes(key, (0, 0)).await;
}

async fn a_session_that_ends_in_the_body_has_stored_nothing(trial: Arc<Trial>) {
    let (library, key, table) = (trial.pool(1), fresh_key(), trial.counter().await);
    for swallows in [false, true] {
        let (counts, sees) = (table.clone(), Arc::clone(&trial));
        let dies = body(async move |tx| {
            count_one(tx, &counts).await?;
            sees.strikes("pg_terminate_backend", key, true).await;
            sees.becomes(key, (0, 0)).await;
            let failed = tx.run("SELECT 1").await;
            assert!(failed.is_err());
            if swallows { Ok(()) } else { failed }
        });
        match library.locked(key.into(), PATIENT, dies).await {
            Err(LockedError::Body(_)) if !swallows => {}
            // Some know that it had ended before COMMIT was sent.
            Err(LockedError::Aborted(_) | LockedError::OutcomeUnknown(_)) if swallows => {}
            ended => panic!("{ended:?}"),
        }
        trial.is_clean(&*library).await;
    }
    assert_eq!(trial.count(&table).await, 0);
}

async fn a_session_that_ends_in_commit_is_an_outcome_that_is_not_known(trial: Arc<Trial>) {
    let (library, key, blocker) = (trial.pool(1), fresh_key(), fresh_key());
    let table = trial.counter_that_commits_under(blocker).await;
    let holder = trial.holder(blocker).await;
    let counts = table.clone();
    let counts = body(async move |tx| count_one(tx, &counts).await);
    let ended = library.locked(key.into(), PATIENT, counts);
    let (ended, ()) = tokio::join!(ended, kills_the_waiter(&trial, blocker));
    assert!(matches!(ended, Err(LockedError::OutcomeUnknown(_))), "{ended:?}");
    holder.end().await;
    trial.becomes(key, (0, 0)).await;
    trial.is_clean(&*library).await;
    assert_eq!(trial.count(&table).await, 0);
}

/// The server has committed, and its answer never comes.
async fn an_answer_to_commit_that_is_lost_is_an_outcome_that_is_not_known(trial: Arc<Trial>) {
    let proxy = Arc::new(Proxy::start(CLUSTER.endpoint()).unwrap());
    let (library, table) = (trial.pool_of_one_at(proxy.url()), trial.counter().await);
    let (counts, freezes) = (table.clone(), Arc::clone(&proxy));
    let counts = body(async move |tx| {
        count_one(tx, &counts).await?;
        freezes.freeze_answers();
        Ok(())
    });
    let ended = library.locked(fresh_key().into(), PATIENT, counts);
    let (ended, ()) = tokio::join!(ended, async {
        trial.comes_true(&format!("(SELECT sum(n) FROM {table}) = 1")).await;
        proxy.cut();
        proxy.thaw();
    });
    assert!(matches!(ended, Err(LockedError::OutcomeUnknown(_))), "{ended:?}");
    trial.is_clean(&*library).await;
}

/// Where there is a future; libpq blocks its thread for as long as the network is silent.
async fn a_silent_server_is_given_up(trial: Arc<Trial>) {
    if trial.pool(1).blocks() {
        return;
    }
    let proxy = Arc::new(Proxy::start(CLUSTER.endpoint()).unwrap());
    let (library, freezes) = (trial.pool_of_one_at(proxy.url()), Arc::clone(&proxy));
    let asks = body(async move |tx| {
        freezes.freeze();
        let silent = tx.lock(fresh_key().into(), PATIENT).await;
        freezes.thaw();
        Ok(silent?)
    });
    let silent = in_time(library.plain(asks)).await.unwrap();
    assert!(
        matches!(silent, Err(Failure::Lock(XactLockError::NoAnswer { .. }))),
        "{silent:?}"
    );
}
