//! Servers on which no lock is to be had.

use std::sync::Arc;

use latchwork_core::{Mode, xact::XactLockError};
use latchwork_harness::Cluster;

use super::{
    BRIEF, Failure, PATIENT, body, fresh_key, never,
    trial::{Ground, Trial, refusal},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_standby_is_refused_by_every_library() {
    let primary = Cluster::start().unwrap();
    let standby = primary.standby().unwrap();
    Ground::on(&standby)
        .tries(|trial| Box::pin(refuses_a_standby(trial)))
        .await;
}

async fn refuses_a_standby(trial: Arc<Trial>) {
    let library = trial.pool(1);
    let locks = body(async move |tx| {
        let by_try = tx.try_lock(fresh_key().into(), Mode::Exclusive).await.unwrap_err();
        let by_wait = tx.lock([fresh_key(), fresh_key()].into(), BRIEF).await.unwrap_err();
        for refused in [by_try, by_wait] {
            assert!(matches!(refused, XactLockError::Standby { .. }), "{refused:?}");
        }
        Ok(())
    });
    library.plain(locks).await.unwrap();
    let refused = refusal(library.locked(fresh_key().into(), PATIENT, never()).await);
    assert!(matches!(refused, XactLockError::Standby { .. }), "{refused:?}");
    trial.is_clean(&*library).await;
}

/// One library at a time, since the table is everybody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_lock_table_is_an_error_of_its_own_for_every_library() {
    let cluster = Cluster::builder()
        .setting("max_connections", 20)
        .setting("max_locks_per_transaction", 10)
        .start()
        .unwrap();
    let ground = Ground::on(&cluster);
    ground.tries_in_turn(|trial| Box::pin(fills_the_table(trial))).await;
}

async fn fills_the_table(trial: Arc<Trial>) {
    let library = trial.pool(1);
    let fills = body(async move |tx| {
        loop {
            tx.try_lock(fresh_key().into(), Mode::Exclusive).await?;
        }
    });
    let full = library.plain(fills).await;
    assert!(
        matches!(full, Err(Failure::Lock(XactLockError::LockTableFull { .. }))),
        "{full:?}"
    );
    trial
        .comes_true("NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory')")
        .await;
}
