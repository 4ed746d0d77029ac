//! Locks in a transaction that the caller has begun.

use std::sync::Arc;

use latchwork_core::{
    Key, Mode,
    xact::{KeySet, XactLockError, XactOptions},
};

use super::{BRIEF, Failure, PATIENT, body, fresh_key, idle, in_time, trial::Trial};

promises! {
    everywhere:
        a_lock_is_held_until_the_transaction_ends_either_way,
        a_second_transaction_waits_until_the_first_has_ended,
        shared_locks_go_together_and_keep_exclusive_ones_out,
        several_keys_are_taken_all_or_none,
        each_of_several_keys_is_waited_for;
    directly:
}

async fn a_lock_is_held_until_the_transaction_ends_either_way(trial: Arc<Trial>) {
    let (library, other) = (trial.pool(1), trial.pool(1));
    // Who else tries the same edges is another library's trial.
    let edges = [
        Key::bigint(i64::MIN + fastrand::i64(0..1000)),
        Key::bigint(i64::MAX - fastrand::i64(0..1000)),
        Key::pair(i32::MIN, fastrand::i32(..)),
    ];
    for key in edges {
        for (commits, waits) in [(true, true), (false, true), (true, false)] {
            let (sees, tries) = (Arc::clone(&trial), Arc::clone(&other));
            let locks = body(async move |tx| {
                if waits {
                    tx.lock(key.into(), PATIENT).await?;
                } else {
                    assert!(tx.try_lock(key.into(), Mode::Exclusive).await?);
                }
                assert_eq!(sees.seen(key).await, (1, 0), "{key}");
                assert!(!tries.tried(key.into(), super::never()).await.unwrap(), "{key}");
                if commits {
                    Ok(())
                } else {
                    Err(Failure::Whim("to be undone"))
                }
            });
            assert_eq!(library.plain(locks).await.is_ok(), commits);
            trial.becomes(key, (0, 0)).await;
            assert!(other.tried(key.into(), idle()).await.unwrap(), "{key}");
        }
    }
    trial.is_clean(&*library).await;
}

async fn a_second_transaction_waits_until_the_first_has_ended(trial: Arc<Trial>) {
    let library = trial.pool(1);
    for options in [PATIENT, XactOptions::without_limit(), PATIENT.shared()] {
        for keys in [vec![fresh_key()], vec![fresh_key(), fresh_key()]] {
            let taken = keys[0];
            let holder = trial.holder(taken).await;
            let (sees, options) = (Arc::clone(&trial), options.clone());
            let waits = body(async move |tx| {
                assert!(!tx.try_lock(KeySet::from(&keys[..]), Mode::Exclusive).await?);
                tx.lock(KeySet::from(&keys[..]), options.clone()).await?;
                for key in &keys {
                    assert_eq!(sees.seen(*key).await, (1, 0));
                }
                Ok(())
            });
            let waits = in_time(library.plain(waits));
            let (waited, ()) = tokio::join!(waits, holder.ends_when_waited_for(&trial, taken));
            waited.unwrap().unwrap();
        }
    }
    trial.is_clean(&*library).await;
}

async fn shared_locks_go_together_and_keep_exclusive_ones_out(trial: Arc<Trial>) {
    let (library, other, key) = (trial.pool(1), trial.pool(1), fresh_key());
    let sees = Arc::clone(&trial);
    let reads = body(async move |tx| {
        assert!(tx.try_lock(key.into(), Mode::Shared).await?);
        assert!(!tx.try_lock(key.into(), Mode::Exclusive).await?);
        assert!(tx.lock(key.into(), BRIEF).await.is_err_and(|late| late.is_timeout()));
        assert_eq!(sees.seen(key).await, (2, 0));
        Ok(())
    });
    let beside = Arc::clone(&other);
    let outer = body(async move |tx| {
        tx.lock(key.into(), PATIENT.shared()).await?;
        beside.plain(reads.clone()).await
    });
    library.plain(outer).await.unwrap();

    let holder = trial.holder(key).await;
    let loses = body(async move |tx| {
        assert!(!tx.try_lock(key.into(), Mode::Shared).await?);
        let late = tx.lock(key.into(), BRIEF.shared()).await.unwrap_err();
        assert!(late.is_timeout(), "{late:?}");
        Ok(())
    });
    library.plain(loses).await.unwrap();
    holder.end().await;
    trial.is_clean(&*library).await;
    trial.is_clean(&*other).await;
}

async fn several_keys_are_taken_all_or_none(trial: Arc<Trial>) {
    let library = trial.pool(1);
    let mut keys = [fresh_key(), Key::pair(fastrand::i32(..), 1), fresh_key()];
    keys.sort();
    for busy in 0..keys.len() {
        let (sees, holder) = (Arc::clone(&trial), trial.holder(keys[busy]).await);
        let loses = body(async move |tx| {
            assert!(!tx.try_lock(keys.into(), Mode::Exclusive).await?);
            let late = tx.lock(keys.into(), BRIEF).await.unwrap_err();
            let all = KeySet::from(keys);
            assert!(
                matches!(&late, XactLockError::TimedOut { keys, .. } if keys == &all),
                "{late:?}"
            );
            for (at, key) in keys.into_iter().enumerate() {
                assert_eq!(sees.seen(key).await, (u32::from(at == busy), 0));
            }
            Ok(())
        });
        library.plain(loses).await.unwrap();
        holder.end().await;
    }
    let sees = Arc::clone(&trial);
    let wins = body(async move |tx| {
        assert!(tx.try_lock(keys.into(), Mode::Exclusive).await?);
        tx.lock(keys.into(), PATIENT).await?;
        assert!(tx.try_lock([].into(), Mode::Shared).await?);
        for key in keys {
            assert_eq!(sees.seen(key).await, (1, 0));
        }
        Ok(())
    });
    library.plain(wins).await.unwrap();
    library.locked([].into(), PATIENT, idle()).await.unwrap();
    assert!(library.tried([].into(), idle()).await.unwrap());
    for key in keys {
        assert_eq!(trial.seen(key).await, (0, 0));
    }
    trial.is_clean(&*library).await;
}

async fn each_of_several_keys_is_waited_for(trial: Arc<Trial>) {
    let library = trial.pool(1);
    let mut keys = [fresh_key(), Key::pair(fastrand::i32(..), 1), fresh_key()];
    keys.sort();
    for busy in keys {
        let sees = Arc::clone(&trial);
        let has_all = body(async move |tx| {
            tx.lock(keys.into(), PATIENT).await?;
            for key in keys {
                assert_eq!(sees.seen(key).await, (1, 0));
            }
            Ok(())
        });
        let holder = trial.holder(busy).await;
        let waits = library.locked(keys.into(), PATIENT, has_all.clone());
        let (waited, ()) = tokio::join!(in_time(waits), holder.ends_when_waited_for(&trial, busy));
        waited.unwrap().unwrap();
        let holder = trial.holder(busy).await;
        let waits = in_time(library.plain(has_all));
        let (waited, ()) = tokio::join!(waits, holder.ends_when_waited_for(&trial, busy));
        waited.unwrap().unwrap();
    }
    trial.is_clean(&*library).await;
}
