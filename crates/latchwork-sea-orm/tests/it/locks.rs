//! Locks on a transaction of the caller's.

use latchwork_sea_orm::{Key, KeySet, XactLockError, XactLockExt as _};
use sea_orm::{
    ConnectionTrait, DatabaseExecutor, DatabaseTransaction, IsolationLevel, Statement, TransactionTrait as _,
};

use crate::support::{MOMENT, SOON, World, fresh_key};

async fn shown(transaction: &DatabaseTransaction, setting: &str) -> String {
    let sql = format!("SELECT current_setting('{setting}')");
    let statement = Statement::from_string(transaction.get_database_backend(), sql);
    let row = transaction.query_one_raw(statement).await.unwrap().unwrap();
    row.try_get_by_index(0).unwrap()
}

async fn is_usable(transaction: &impl ConnectionTrait) -> bool {
    transaction.execute_unprepared("SELECT 1").await.is_ok()
}

#[tokio::test]
async fn a_lock_is_held_until_the_transaction_ends_whichever_way() {
    let world = World::new().await;
    let db = world.database(2).await;
    let edges = [
        Key::bigint(i64::MIN),
        Key::bigint(i64::MAX),
        Key::pair(i32::MIN, i32::MAX),
    ];
    for key in edges.into_iter().chain([fresh_key()]) {
        for end in ["commit", "rollback", "drop"] {
            let transaction = db.begin().await.unwrap();
            transaction.xact_lock(key).within(SOON).await.unwrap();
            assert_eq!(world.seen(key).await, (1, 0), "{key}");
            match end {
                "commit" => transaction.commit().await.unwrap(),
                "rollback" => transaction.rollback().await.unwrap(),
                _ => drop(transaction),
            }
            world.becomes(key, (0, 0)).await;
        }
    }
    assert_eq!(world.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn a_second_transaction_waits_until_the_first_has_ended() {
    let world = World::new().await;
    let db = world.database(2).await;
    for limited in [true, false] {
        let key = fresh_key();
        let first = db.begin().await.unwrap();
        first.xact_lock(key).without_limit().await.unwrap();
        let second = db.begin().await.unwrap();
        assert!(!second.try_xact_lock(key).await.unwrap());
        let lock = second.xact_lock(key);
        let waiting = if limited {
            lock.within(SOON)
        } else {
            lock.without_limit()
        };
        let (granted, ()) = tokio::join!(waiting, async {
            world.becomes(key, (1, 1)).await;
            first.commit().await.unwrap();
        });
        granted.unwrap();
        assert_eq!(world.seen(key).await, (1, 0));
    }
}

/// Whoever takes the key by the server's own functions keeps us out, and is kept out.
#[tokio::test]
async fn any_other_session_excludes_and_is_excluded() {
    let world = World::new().await;
    let db = world.database(1).await;
    let take = "SELECT pg_try_advisory_lock(77)";
    let give_back = "SELECT pg_advisory_unlock(77)";
    assert_eq!(world.value(take).await, "t");
    let transaction = db.begin().await.unwrap();
    assert!(!transaction.try_xact_lock(Key::bigint(77)).await.unwrap());
    let timed_out = transaction.xact_lock(Key::bigint(77)).within(MOMENT).await.unwrap_err();
    assert!(timed_out.is_timeout(), "{timed_out:?}");
    assert_eq!(world.value(give_back).await, "t");
    assert!(transaction.try_xact_lock(Key::bigint(77)).await.unwrap());
    assert_eq!(world.value("SELECT pg_try_advisory_xact_lock(77)").await, "f");
    assert_eq!(world.value("SELECT pg_try_advisory_lock_shared(77)").await, "f");
    let by_psql = world.cluster.psql("SELECT pg_try_advisory_xact_lock(77)").unwrap();
    assert_eq!(by_psql, "f");
    transaction.commit().await.unwrap();
    assert_eq!(world.value(take).await, "t");
}

#[tokio::test]
async fn shared_locks_go_together_and_keep_exclusive_ones_out() {
    let world = World::new().await;
    let db = world.database(2).await;
    let key = fresh_key();
    let (first, second) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    first.xact_lock_shared(key).within(SOON).await.unwrap();
    assert!(second.try_xact_lock_shared(key).await.unwrap());
    assert!(!second.try_xact_lock(key).await.unwrap());
    assert!(second.xact_lock(key).within(MOMENT).await.unwrap_err().is_timeout());
    assert_eq!(world.seen(key).await, (2, 0));
    second.rollback().await.unwrap();
    first.xact_lock(key).within(SOON).await.unwrap();
    let second = db.begin().await.unwrap();
    assert!(!second.try_xact_lock_shared(key).await.unwrap());
    let timed_out = second.xact_lock_shared(key).within(MOMENT).await.unwrap_err();
    assert!(timed_out.is_timeout(), "{timed_out:?}");
}

#[tokio::test]
async fn a_limit_that_runs_out_leaves_the_transaction_and_its_lock_timeout_as_they_were() {
    let world = World::new().await;
    let db = world.database(2).await;
    let (taken, free) = (fresh_key(), fresh_key());
    let first = db.begin().await.unwrap();
    first.xact_lock(taken).within(SOON).await.unwrap();
    let second = db.begin().await.unwrap();
    second
        .execute_unprepared("SET LOCAL lock_timeout = '9s'")
        .await
        .unwrap();
    for limit in [std::time::Duration::ZERO, MOMENT] {
        let timed_out = second.xact_lock(taken).within(limit).await.unwrap_err();
        assert!(
            timed_out.is_timeout() && timed_out.leaves_transaction_usable(),
            "{timed_out:?}"
        );
        assert_eq!(shown(&second, "lock_timeout").await, "9s");
        assert_eq!(world.seen(taken).await, (1, 0));
    }
    second.xact_lock(free).within(SOON).await.unwrap();
    assert_eq!(shown(&second, "lock_timeout").await, "9s");
    second.commit().await.unwrap();
    assert_eq!(world.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn several_keys_are_taken_all_or_none() {
    let world = World::new().await;
    let db = world.database(2).await;
    let keys = [fresh_key(), Key::pair(fastrand::i32(..), 1), fresh_key()];
    let (first, second) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    first.xact_lock(keys[2]).within(SOON).await.unwrap();
    assert!(!second.try_xact_lock(keys).await.unwrap());
    let timed_out = second.xact_lock(keys).within(MOMENT).await.unwrap_err();
    assert!(
        matches!(&timed_out, XactLockError::TimedOut { keys: all, .. } if *all == KeySet::from(keys)),
        "{timed_out:?}"
    );
    assert_eq!(world.all_seen().await, (1, 0));
    first.commit().await.unwrap();
    assert!(second.try_xact_lock(keys).await.unwrap());
    second.xact_lock(&keys[..]).within(MOMENT).await.unwrap();
    assert_eq!(world.all_seen().await, (3, 0));
    assert!(second.try_xact_lock_shared([]).await.unwrap());
    second.rollback().await.unwrap();
    assert_eq!(world.all_seen().await, (0, 0));
}

#[tokio::test]
async fn a_lock_of_a_nested_transaction_goes_with_its_rollback_and_stays_with_its_commit() {
    let world = World::new().await;
    let db = world.database(1).await;
    let (outer, inner) = (fresh_key(), fresh_key());
    let transaction = db.begin().await.unwrap();
    transaction.xact_lock(outer).within(SOON).await.unwrap();
    for (commits, held) in [(false, 1), (true, 2)] {
        let nested = transaction.begin().await.unwrap();
        nested.xact_lock(inner).within(SOON).await.unwrap();
        assert_eq!(world.all_seen().await, (2, 0));
        if commits {
            nested.commit().await.unwrap();
        } else {
            nested.rollback().await.unwrap();
        }
        assert_eq!(world.all_seen().await, (held, 0));
    }
    transaction.commit().await.unwrap();
    assert_eq!(world.all_seen().await, (0, 0));
}

/// A pool has no methods for it, and a wrapper that may have a transaction is asked before anything is sent.
#[tokio::test]
async fn without_a_transaction_nothing_is_locked_for_no_time() {
    let world = World::new().await;
    let db = world.database(1).await;
    let key = fresh_key();
    let alone = DatabaseExecutor::from(&db);
    // So that whatever it sends would not come through.
    let only_connection = db.get_postgres_connection_pool().acquire().await.unwrap();
    let by_try = alone.try_xact_lock(key).await.unwrap_err();
    let by_wait = alone.xact_lock_shared(key).within(SOON).await.unwrap_err();
    for error in [by_try, by_wait] {
        assert!(matches!(error, XactLockError::NoTransaction { .. }), "{error:?}");
    }
    drop(only_connection);

    let transaction = db.begin().await.unwrap();
    assert!(DatabaseExecutor::from(&transaction).try_xact_lock(key).await.unwrap());
    assert!(
        DatabaseExecutor::OwnedTransaction(transaction)
            .try_xact_lock(key)
            .await
            .unwrap()
    );
    world.becomes(key, (0, 0)).await;
    // The server knows of a transaction that SeaORM takes to be open.
    let transaction = db.begin().await.unwrap();
    transaction.execute_unprepared("COMMIT").await.unwrap();
    let error = transaction.xact_lock(key).within(SOON).await.unwrap_err();
    assert!(matches!(error, XactLockError::NoTransaction { .. }), "{error:?}");
    assert_eq!(world.all_seen().await, (0, 0));
}

#[tokio::test]
async fn a_snapshot_older_than_the_lock_is_refused_unless_that_is_allowed() {
    let world = World::new().await;
    let db = world.database(1).await;
    let key = fresh_key();
    for (level, name) in [
        (IsolationLevel::RepeatableRead, "repeatable read"),
        (IsolationLevel::Serializable, "serializable"),
    ] {
        let transaction = db.begin_with_config(Some(level), None).await.unwrap();
        let by_try = transaction.try_xact_lock(key).await.unwrap_err();
        let by_wait = transaction
            .xact_lock([key, fresh_key()])
            .within(SOON)
            .await
            .unwrap_err();
        for error in [by_try, by_wait] {
            assert!(
                matches!(&error, XactLockError::StaleSnapshot { isolation, .. } if isolation == name),
                "{error:?}"
            );
        }
        assert_eq!(world.all_seen().await, (0, 0));
        transaction
            .xact_lock(key)
            .allow_stale_snapshot()
            .within(SOON)
            .await
            .unwrap();
        assert_eq!(world.seen(key).await, (1, 0));
        assert!(is_usable(&transaction).await);
        transaction.commit().await.unwrap();
    }
}

#[tokio::test]
async fn an_aborted_transaction_and_a_deadlock_say_so() {
    let world = World::new().await;
    let db = world.database(2).await;
    let (a, b) = (fresh_key(), fresh_key());
    let aborted = db.begin().await.unwrap();
    aborted.execute_unprepared("SELECT 1 / 0").await.unwrap_err();
    let error = aborted.try_xact_lock(a).await.unwrap_err();
    assert!(matches!(error, XactLockError::Aborted { .. }), "{error:?}");
    drop(aborted);

    let (first, second) = (db.begin().await.unwrap(), db.begin().await.unwrap());
    first.xact_lock(a).within(SOON).await.unwrap();
    second.xact_lock(b).within(SOON).await.unwrap();
    let one = async move { (first.xact_lock(b).within(SOON).await, first) };
    let two = async move { (second.xact_lock(a).within(SOON).await, second) };
    // The one that the server has chosen rolls back, so that the other can go on.
    let (victim, other) = tokio::select! { ended = one => (ended, None), ended = two => (ended, Some(())) };
    assert!(
        matches!(&victim.0, Err(XactLockError::Deadlock { .. })),
        "{:?} {other:?}",
        victim.0
    );
}

#[test]
fn what_is_awaited_may_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn check(transaction: &DatabaseTransaction) {
        is_send(&transaction.xact_lock(Key::bigint(1)));
        is_send(&transaction.xact_lock(Key::bigint(1)).within(SOON));
        is_send(&transaction.try_xact_lock(Key::bigint(1)));
    }
    let _ = check;
}
