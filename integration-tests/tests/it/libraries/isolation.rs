//! What a transaction reads that has a lock: never less than the last holder has committed.

use std::sync::Arc;

use latchwork_core::{
    Mode,
    xact::{KeySet, XactLockError},
};

use super::{PATIENT, body, body::holds, fresh_key, trial::Trial};

promises! {
    everywhere:
        a_snapshot_older_than_the_lock_is_refused_unless_that_is_allowed,
        the_work_sees_what_the_last_holder_has_committed;
    directly: a_locked_transaction_is_read_committed_whatever_the_default_is
}

async fn a_snapshot_older_than_the_lock_is_refused_unless_that_is_allowed(trial: Arc<Trial>) {
    let library = trial.pool(1);
    for level in ["repeatable read", "serializable", "read committed", "read uncommitted"] {
        let (key, other, sees) = (fresh_key(), fresh_key(), Arc::clone(&trial));
        let locks = body(async move |tx| {
            let set = format!("SET TRANSACTION ISOLATION LEVEL {level}");
            tx.run(&set).await?;
            if level.starts_with("read") {
                assert!(tx.try_lock(key.into(), Mode::Exclusive).await?);
            } else {
                for keys in [KeySet::from(key), KeySet::from([key, other])] {
                    let by_try = tx.try_lock(keys.clone(), Mode::Exclusive).await.unwrap_err();
                    let by_wait = tx.lock(keys, PATIENT.shared()).await.unwrap_err();
                    for refused in [by_try, by_wait] {
                        let is_named =
                            matches!(&refused, XactLockError::StaleSnapshot { isolation, .. } if isolation == level);
                        assert!(is_named && refused.leaves_transaction_usable(), "{refused:?}");
                        assert!(refused.to_string().contains("READ COMMITTED"), "{refused}");
                    }
                }
                assert_eq!(sees.seen(key).await, (0, 0));
            }
            tx.lock_anyway(key).await?;
            assert_eq!(sees.seen(key).await, (1, 0));
            tx.run("SELECT 1").await
        });
        library.plain(locks).await.unwrap();
        trial.is_clean(&*library).await;
    }
}

async fn the_work_sees_what_the_last_holder_has_committed(trial: Arc<Trial>) {
    let (library, table, key) = (trial.pool(1), trial.counter().await, fresh_key());
    for n in [5, 6] {
        let holder = trial.holder(key).await;
        holder.does(&format!("UPDATE {table} SET n = {n}")).await;
        let is_seen = format!("(SELECT n FROM {table}) = {n}");
        let sees = body(async move |tx| {
            tx.lock(key.into(), PATIENT).await?;
            holds(tx, &is_seen).await
        });
        let ends = holder.ends_when_waited_for(&trial, key);
        if n == 5 {
            let (saw, ()) = tokio::join!(library.locked(key.into(), PATIENT, sees), ends);
            saw.unwrap();
        } else {
            let (saw, ()) = tokio::join!(library.plain(sees), ends);
            saw.unwrap();
        }
    }
    trial.is_clean(&*library).await;
}

async fn a_locked_transaction_is_read_committed_whatever_the_default_is(trial: Arc<Trial>) {
    let library = trial.pool(1);
    for level in ["repeatable read", "serializable"] {
        let set = format!("SET default_transaction_isolation = '{level}'");
        library.alone(set).await.unwrap();
        let is_default =
            body(async move |tx| holds(tx, &format!("current_setting('transaction_isolation') = '{level}'")).await);
        library.plain(is_default).await.unwrap();
        let is_fixed = body(async |tx| holds(tx, "current_setting('transaction_isolation') = 'read committed'").await);
        library
            .locked(fresh_key().into(), PATIENT, is_fixed.clone())
            .await
            .unwrap();
        assert!(library.tried(fresh_key().into(), is_fixed).await.unwrap());
    }
}
