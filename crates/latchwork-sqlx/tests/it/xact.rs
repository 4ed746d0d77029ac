//! Locks on a transaction that the caller has begun.

use std::time::{Duration, Instant};

use latchwork_harness::{Cluster, Proxy};
use latchwork_sqlx::{Key, KeySet, XactLockError, XactLockExt as _};
use sqlx::{Connection as _, PgConnection, PgTransaction};

use crate::support::{
    CLUSTER, LONG, MOMENT, becomes, connection, fresh_key, holder, is_free, left, pid, polled, pool, run, seen,
    terminate,
};

async fn shown(transaction: &mut PgTransaction<'_>, setting: &str) -> String {
    let sql = format!("SELECT current_setting('{setting}')");
    let value = sqlx::query_scalar(sqlx::AssertSqlSafe(sql));
    value.fetch_one(&mut **transaction).await.unwrap()
}

#[tokio::test]
async fn a_lock_is_held_until_the_transaction_ends_either_way() {
    let mut one = connection().await;
    for key in [fresh_key(), Key::bigint(i64::MIN), Key::pair(i32::MIN, i32::MAX)] {
        for commit in [true, false] {
            let mut transaction = one.begin().await.unwrap();
            transaction.xact_lock(key).within(LONG).await.unwrap();
            assert_eq!(seen(key), (1, 0), "{key}");
            assert!(!is_free(key), "{key}");
            let ended = if commit {
                transaction.commit().await
            } else {
                transaction.rollback().await
            };
            ended.unwrap();
            assert!(is_free(key), "{key}");
        }
        let mut transaction = one.begin().await.unwrap();
        assert!(transaction.try_xact_lock(key).await.unwrap());
        assert_eq!(seen(key), (1, 0), "{key}");
    }
}

#[tokio::test]
async fn a_second_transaction_waits_until_the_first_has_ended() {
    let (mut one, mut two) = (connection().await, connection().await);
    for limited in [true, false] {
        let key = fresh_key();
        let first = holder(&mut one, key).await;
        let mut second = two.begin().await.unwrap();
        assert!(!second.try_xact_lock(key).await.unwrap());
        let lock = second.xact_lock(key);
        let waiting = if limited {
            lock.within(LONG)
        } else {
            lock.without_limit()
        };
        let (granted, ()) = tokio::join!(waiting, async {
            becomes(key, (1, 1)).await;
            first.commit().await.unwrap();
        });
        granted.unwrap();
        assert_eq!(seen(key), (1, 0));
    }
}

#[tokio::test]
async fn shared_locks_go_together_and_keep_exclusive_ones_out() {
    let (mut one, mut two) = (connection().await, connection().await);
    let key = fresh_key();
    let mut first = one.begin().await.unwrap();
    first.xact_lock_shared(key).within(LONG).await.unwrap();
    let mut second = two.begin().await.unwrap();
    assert!(second.try_xact_lock_shared(key).await.unwrap());
    assert!(!second.try_xact_lock(key).await.unwrap());
    assert!(second.xact_lock(key).within(MOMENT).await.unwrap_err().is_timeout());
    assert_eq!(seen(key), (2, 0));
    second.rollback().await.unwrap();
    first.rollback().await.unwrap();
    let first = holder(&mut one, key).await;
    let mut second = two.begin().await.unwrap();
    assert!(!second.try_xact_lock_shared(key).await.unwrap());
    let refused = second.xact_lock_shared(key).within(MOMENT).await.unwrap_err();
    assert!(refused.is_timeout(), "{refused:?}");
    first.rollback().await.unwrap();
}

#[tokio::test]
async fn a_limit_that_runs_out_leaves_the_transaction_and_its_lock_timeout_as_they_were() {
    let cluster = Cluster::start().unwrap();
    let mut one = PgConnection::connect(&cluster.url()).await.unwrap();
    let mut two = PgConnection::connect(&cluster.url()).await.unwrap();
    let (taken, free) = (fresh_key(), fresh_key());
    let first = holder(&mut one, taken).await;
    for (set, expected) in [
        ("SELECT 1", "0"),
        ("SET LOCAL lock_timeout = '7s'", "7s"),
        ("SET LOCAL lock_timeout = 1", "1ms"),
    ] {
        let mut second = two.begin().await.unwrap();
        run(&mut second, set.to_owned()).await.unwrap();
        for limit in [MOMENT, Duration::ZERO, Duration::from_micros(300)] {
            let begun = Instant::now();
            let error = second.xact_lock(taken).within(limit).await.unwrap_err();
            let as_told = matches!(&error, XactLockError::TimedOut { keys, limit: told } if keys == &taken.into() && told == &limit);
            assert!(as_told && begun.elapsed() >= limit, "{error:?}");
            assert_eq!(shown(&mut second, "lock_timeout").await, expected);
        }
        second.xact_lock(free).within(LONG).await.unwrap();
        assert_eq!(shown(&mut second, "lock_timeout").await, expected);
        second.commit().await.unwrap();
    }
    first.commit().await.unwrap();
    let log = cluster.log();
    assert!(
        !["WARNING:", "ERROR:", "FATAL:"].iter().any(|word| log.contains(word)),
        "{log}"
    );
}

#[tokio::test]
async fn several_keys_are_taken_all_or_none() {
    let (mut one, mut two) = (connection().await, connection().await);
    let keys = [fresh_key(), Key::pair(fastrand::i32(..), 1), fresh_key()];
    let first = holder(&mut one, keys[2]).await;
    let mut second = two.begin().await.unwrap();
    assert!(!second.try_xact_lock(keys).await.unwrap());
    let timed_out = second.xact_lock(keys).within(MOMENT).await.unwrap_err();
    let all = KeySet::from(keys);
    assert!(
        matches!(&timed_out, XactLockError::TimedOut { keys, .. } if keys == &all),
        "{timed_out:?}"
    );
    assert_eq!(keys.map(seen), [(0, 0), (0, 0), (1, 0)]);
    first.commit().await.unwrap();
    assert!(second.try_xact_lock(&keys[..]).await.unwrap());
    second.xact_lock(keys.to_vec()).within(MOMENT).await.unwrap();
    assert_eq!(keys.map(seen), [(1, 0); 3]);
    second.rollback().await.unwrap();
    assert_eq!(keys.map(seen), [(0, 0); 3]);
}

#[tokio::test]
async fn a_lock_under_a_savepoint_goes_when_it_is_rolled_back_to() {
    let mut one = connection().await;
    let (outer, inner, kept) = (fresh_key(), fresh_key(), fresh_key());
    let mut transaction = one.begin().await.unwrap();
    transaction.xact_lock(outer).within(LONG).await.unwrap();
    let mut savepoint = transaction.begin().await.unwrap();
    savepoint.xact_lock(inner).within(LONG).await.unwrap();
    assert_eq!(seen(inner), (1, 0));
    savepoint.rollback().await.unwrap();
    assert_eq!((seen(outer), seen(inner)), ((1, 0), (0, 0)));
    let mut savepoint = transaction.begin().await.unwrap();
    savepoint.xact_lock(kept).within(LONG).await.unwrap();
    savepoint.commit().await.unwrap();
    assert_eq!((seen(outer), seen(kept)), ((1, 0), (1, 0)));
}

#[tokio::test]
async fn without_a_transaction_nothing_is_sent() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let pool = pool(&proxy.url(), 1);
    let mut pooled = pool.acquire().await.unwrap();
    pooled.ping().await.unwrap();
    let before = proxy.bytes_to_server();
    let key = fresh_key();
    let mut refused = vec![
        pooled.try_xact_lock(key).await.map(drop),
        pooled.try_xact_lock_shared(key).await.map(drop),
        pooled.xact_lock(key).within(LONG).await,
    ];
    let direct: &mut PgConnection = &mut pooled;
    refused.push(direct.xact_lock_shared([key, fresh_key()]).without_limit().await);
    for refused in refused {
        assert!(
            matches!(refused, Err(XactLockError::NoTransaction { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(proxy.bytes_to_server(), before);
    let mut transaction = pooled.begin().await.unwrap();
    assert!(transaction.try_xact_lock(key).await.unwrap());
}

#[tokio::test]
async fn snapshots_older_than_the_lock_are_refused_unless_allowed() {
    let mut one = connection().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let key = fresh_key();
        let begin = sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"));
        let mut transaction = one.begin_with(begin).await.unwrap();
        let by_try = transaction.try_xact_lock(key).await.unwrap_err();
        let by_wait = transaction.xact_lock(key).within(LONG).await.unwrap_err();
        for error in [by_try, by_wait] {
            let named =
                matches!(&error, XactLockError::StaleSnapshot { isolation, .. } if isolation.to_uppercase() == level);
            assert!(named && error.leaves_transaction_usable(), "{error:?}");
        }
        assert_eq!(seen(key), (0, 0));
        let lock = transaction.xact_lock(key).allow_stale_snapshot();
        lock.within(LONG).await.unwrap();
        assert_eq!(seen(key), (1, 0));
    }
}

/// Polled up to its grant, and dropped at each place before.
#[tokio::test]
async fn a_wait_that_is_dropped_anywhere_leaves_the_transaction_usable() {
    let (mut one, mut two) = (connection().await, connection().await);
    for polls in 0..5 {
        let key = fresh_key();
        let first = holder(&mut one, key).await;
        let mut second = two.begin().await.unwrap();
        let wait = second.xact_lock(key).within(LONG);
        assert!(polled(polls, wait).await.is_none());
        let free = fresh_key();
        second.xact_lock(free).within(LONG).await.unwrap();
        assert_eq!((seen(key), seen(free)), ((1, 0), (1, 0)), "after {polls} polls");
        first.rollback().await.unwrap();
        second.commit().await.unwrap();
        assert_eq!(left(&mut two).await, 0);
    }
}

#[tokio::test]
async fn an_aborted_transaction_and_a_deadlock_say_so() {
    let (mut one, mut two) = (connection().await, connection().await);
    let (a, b) = (fresh_key(), fresh_key());
    let mut first = one.begin().await.unwrap();
    run(&mut first, "SELECT 1/0".to_owned()).await.unwrap_err();
    let error = first.xact_lock(a).within(MOMENT).await.unwrap_err();
    assert!(matches!(error, XactLockError::Aborted { .. }), "{error:?}");
    first.rollback().await.unwrap();

    let (mut first, mut second) = (one.begin().await.unwrap(), two.begin().await.unwrap());
    first.xact_lock(a).within(LONG).await.unwrap();
    second.xact_lock(b).within(LONG).await.unwrap();
    let (one, two) = tokio::join!(crosses(first, b), crosses(second, a));
    assert!(one != two, "one of them is the victim");
}

/// Whether it had the key, and was not the victim; which rolls back, so that the other can go on.
async fn crosses(mut transaction: PgTransaction<'_>, key: Key) -> bool {
    match transaction.xact_lock(key).within(LONG).await {
        Ok(()) => true,
        Err(error) => {
            assert!(matches!(error, XactLockError::Deadlock { .. }), "{error:?}");
            transaction.rollback().await.unwrap();
            false
        }
    }
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let mut one = PgConnection::connect(&proxy.url()).await.unwrap();
    let mut transaction = one.begin().await.unwrap();
    proxy.freeze();
    let error = transaction.try_xact_lock(fresh_key()).await.unwrap_err();
    assert!(matches!(error, XactLockError::NoAnswer { .. }), "{error:?}");
    proxy.thaw();
}

#[tokio::test]
async fn a_waiter_whose_session_ends_is_told() {
    let (mut one, mut two) = (connection().await, connection().await);
    let key = fresh_key();
    let first = holder(&mut one, key).await;
    let mut second = two.begin().await.unwrap();
    let pid = pid(&mut second).await;
    let (waited, ()) = tokio::join!(second.xact_lock(key).within(LONG), async {
        becomes(key, (1, 1)).await;
        terminate(pid);
    });
    let error = waited.unwrap_err();
    assert!(matches!(error, XactLockError::ConnectionLost { .. }), "{error:?}");
    first.rollback().await.unwrap();
    becomes(key, (0, 0)).await;
}

#[tokio::test]
async fn a_hot_standby_is_refused() {
    let primary = Cluster::start().unwrap();
    let standby = primary.standby().unwrap();
    let mut one = PgConnection::connect(&standby.url()).await.unwrap();
    let mut transaction = one.begin().await.unwrap();
    let error = transaction.try_xact_lock(fresh_key()).await.unwrap_err();
    assert!(matches!(error, XactLockError::Standby { .. }), "{error:?}");
}
