//! Locks on a transaction that the caller has begun.

use std::time::{Duration, Instant};

use diesel::{QueryResult, QueryableByName, sql_types::Text};
use diesel_async::{AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _, SimpleAsyncConnection as _};
use latchwork_diesel_async::{Key, KeySet, XactLockError, XactLockExt as _};
use latchwork_harness::{Cluster, Proxy};

use crate::support::{
    CLUSTER, LONG, MOMENT, TestPool as _, becomes, connection, end, fresh_key, holder, is_free, left, pid, polled,
    pool, run, seen, terminate,
};

#[derive(QueryableByName)]
struct Shown {
    #[diesel(sql_type = Text)]
    value: String,
}

async fn shown(connection: &mut AsyncPgConnection, setting: &str) -> String {
    let sql = format!("SELECT current_setting('{setting}') AS value");
    let shown: Shown = diesel::sql_query(sql).get_result(connection).await.unwrap();
    shown.value
}

/// What a closure of `transaction` has for an error.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs something in a transaction that is rolled back afterwards.
async fn undone<T: Send>(
    connection: &mut AsyncPgConnection,
    body: impl for<'r> latchwork_diesel_async::TransactionBody<&'r mut AsyncPgConnection, T, Failure>,
) -> T {
    connection.batch_execute("SELECT 1").await.unwrap();
    let mut value = None;
    let ended = connection
        .transaction(async |tx| {
            value = Some(body(tx).await?);
            Err::<(), Failure>("to be rolled back".into())
        })
        .await;
    let error = ended.unwrap_err();
    value.unwrap_or_else(|| panic!("{error}"))
}

#[tokio::test]
async fn a_lock_is_held_until_the_transaction_ends_either_way() {
    let mut one = connection().await;
    for key in [fresh_key(), Key::bigint(i64::MIN), Key::pair(i32::MIN, i32::MAX)] {
        one.transaction(async |tx| {
            tx.xact_lock(key).within(LONG).await?;
            assert_eq!(seen(key), (1, 0), "{key}");
            assert!(!is_free(key), "{key}");
            Ok::<_, Failure>(())
        })
        .await
        .unwrap();
        assert!(is_free(key), "{key}");
        let granted = undone(&mut one, async |tx| {
            let granted = tx.try_xact_lock(key).await?;
            assert_eq!(seen(key), (1, 0), "{key}");
            Ok(granted)
        });
        assert!(granted.await);
        assert!(is_free(key), "{key}");
    }
}

#[tokio::test]
async fn a_second_transaction_waits_until_the_first_has_ended() {
    let mut two = connection().await;
    for limited in [true, false] {
        let key = fresh_key();
        let first = holder(key).await;
        let second = two.transaction(async |tx| {
            assert!(!tx.try_xact_lock(key).await?);
            let lock = tx.xact_lock(key);
            let waiting = if limited {
                lock.within(LONG)
            } else {
                lock.without_limit()
            };
            waiting.await?;
            assert_eq!(seen(key), (1, 0));
            Ok::<_, Failure>(())
        });
        let (granted, ()) = tokio::join!(second, async {
            becomes(key, (1, 1)).await;
            end(first).await;
        });
        granted.unwrap();
    }
}

#[tokio::test]
async fn shared_locks_go_together_and_keep_exclusive_ones_out() {
    let (mut one, mut two) = (connection().await, connection().await);
    let key = fresh_key();
    undone(&mut one, async |first| {
        first.xact_lock_shared(key).within(LONG).await?;
        two.transaction(async |second| {
            assert!(second.try_xact_lock_shared(key).await?);
            assert!(!second.try_xact_lock(key).await?);
            assert!(second.xact_lock(key).within(MOMENT).await.unwrap_err().is_timeout());
            assert_eq!(seen(key), (2, 0));
            Ok::<_, Failure>(())
        })
        .await
    })
    .await;
    let first = holder(key).await;
    undone(&mut two, async |second| {
        assert!(!second.try_xact_lock_shared(key).await?);
        let refused = second.xact_lock_shared(key).within(MOMENT).await.unwrap_err();
        assert!(refused.is_timeout(), "{refused:?}");
        Ok(())
    })
    .await;
    end(first).await;
}

#[tokio::test]
async fn a_limit_that_runs_out_leaves_the_transaction_and_its_lock_timeout_as_they_were() {
    let cluster = Cluster::start().unwrap();
    let mut one = AsyncPgConnection::establish(&cluster.url()).await.unwrap();
    let mut two = AsyncPgConnection::establish(&cluster.url()).await.unwrap();
    let (taken, free) = (fresh_key(), fresh_key());
    let take = format!("BEGIN; SELECT pg_advisory_xact_lock({})", taken.sql_arguments());
    run(&mut one, take).await.unwrap();
    for (set, expected) in [
        ("SELECT 1", "0"),
        ("SET LOCAL lock_timeout = '7s'", "7s"),
        ("SET LOCAL lock_timeout = 1", "1ms"),
    ] {
        two.transaction(async |second| {
            run(second, set.to_owned()).await?;
            for limit in [MOMENT, Duration::ZERO, Duration::from_micros(300)] {
                let begun = Instant::now();
                let error = second.xact_lock(taken).within(limit).await.unwrap_err();
                let as_told = matches!(&error, XactLockError::TimedOut { keys, limit: told } if keys == &taken.into() && told == &limit);
                assert!(as_told && begun.elapsed() >= limit, "{error:?}");
                assert_eq!(shown(second, "lock_timeout").await, expected);
            }
            second.xact_lock(free).within(LONG).await?;
            assert_eq!(shown(second, "lock_timeout").await, expected);
            Ok::<_, Failure>(())
        })
        .await
        .unwrap();
    }
    run(&mut one, "COMMIT".to_owned()).await.unwrap();
    let log = cluster.log();
    assert!(
        !["WARNING:", "ERROR:", "FATAL:"].iter().any(|word| log.contains(word)),
        "{log}"
    );
}

#[tokio::test]
async fn several_keys_are_taken_all_or_none() {
    let mut two = connection().await;
    let keys = [fresh_key(), Key::pair(fastrand::i32(..), 1), fresh_key()];
    let first = holder(keys[2]).await;
    undone(&mut two, async |second| {
        assert!(!second.try_xact_lock(keys).await?);
        let timed_out = second.xact_lock(keys).within(MOMENT).await.unwrap_err();
        let all = KeySet::from(keys);
        assert!(
            matches!(&timed_out, XactLockError::TimedOut { keys, .. } if keys == &all),
            "{timed_out:?}"
        );
        assert_eq!(keys.map(seen), [(0, 0), (0, 0), (1, 0)]);
        end(first).await;
        assert!(second.try_xact_lock(&keys[..]).await?);
        second.xact_lock(keys.to_vec()).within(MOMENT).await?;
        assert_eq!(keys.map(seen), [(1, 0); 3]);
        Ok(())
    })
    .await;
    assert_eq!(keys.map(seen), [(0, 0); 3]);
}

#[tokio::test]
async fn a_lock_under_a_savepoint_goes_when_it_is_rolled_back_to() {
    let mut one = connection().await;
    let (outer, inner, kept) = (fresh_key(), fresh_key(), fresh_key());
    one.transaction(async |tx| {
        tx.xact_lock(outer).within(LONG).await?;
        undone(tx, async |savepoint| {
            savepoint.xact_lock(inner).within(LONG).await?;
            assert_eq!(seen(inner), (1, 0));
            Ok(())
        })
        .await;
        assert_eq!((seen(outer), seen(inner)), ((1, 0), (0, 0)));
        tx.transaction(async |savepoint| {
            savepoint.xact_lock(kept).within(LONG).await?;
            Ok::<_, Failure>(())
        })
        .await?;
        assert_eq!((seen(outer), seen(kept)), ((1, 0), (1, 0)));
        Ok::<_, Failure>(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn without_a_transaction_nothing_is_sent() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let pool = pool(&proxy.url(), 1);
    let mut pooled = pool.connection().await;
    run(&mut pooled, "SELECT 1".to_owned()).await.unwrap();
    let before = proxy.bytes_to_server();
    let key = fresh_key();
    let mut refused = vec![
        pooled.try_xact_lock(key).await.map(drop),
        pooled.try_xact_lock_shared(key).await.map(drop),
        pooled.xact_lock(key).within(LONG).await,
    ];
    let direct: &mut AsyncPgConnection = &mut pooled;
    refused.push(direct.xact_lock_shared([key, fresh_key()]).without_limit().await);
    for refused in refused {
        assert!(
            matches!(refused, Err(XactLockError::NoTransaction { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(proxy.bytes_to_server(), before);
    assert!(undone(&mut pooled, async |tx| Ok(tx.try_xact_lock(key).await?)).await);
}

#[tokio::test]
async fn snapshots_older_than_the_lock_are_refused_unless_allowed() {
    let mut one = connection().await;
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let key = fresh_key();
        let begin = one.build_transaction();
        let begin = if level == "SERIALIZABLE" {
            begin.serializable()
        } else {
            begin.repeatable_read()
        };
        let mut begin = begin;
        begin
            .run(async |tx| {
                let by_try = tx.try_xact_lock(key).await.unwrap_err();
                let by_wait = tx.xact_lock(key).within(LONG).await.unwrap_err();
                for error in [by_try, by_wait] {
                    let named =
                        matches!(&error, XactLockError::StaleSnapshot { isolation, .. } if isolation.to_uppercase() == level);
                    assert!(named && error.leaves_transaction_usable(), "{error:?}");
                }
                assert_eq!(seen(key), (0, 0));
                let lock = tx.xact_lock(key).allow_stale_snapshot();
                lock.within(LONG).await.unwrap();
                assert_eq!(seen(key), (1, 0));
                QueryResult::Ok(())
            })
            .await
            .unwrap();
    }
}

/// Polled up to its grant, and dropped at each place before.
#[tokio::test]
async fn a_wait_that_is_dropped_anywhere_leaves_the_transaction_usable() {
    let mut two = connection().await;
    for polls in 0..5 {
        let key = fresh_key();
        let first = holder(key).await;
        two.transaction(async |second| {
            let wait = second.xact_lock(key).within(LONG);
            assert!(polled(polls, wait).await.is_none());
            let free = fresh_key();
            second.xact_lock(free).within(LONG).await?;
            assert_eq!((seen(key), seen(free)), ((1, 0), (1, 0)), "after {polls} polls");
            Ok::<_, Failure>(())
        })
        .await
        .unwrap();
        end(first).await;
        assert_eq!(left(&mut two).await, 0);
    }
}

#[tokio::test]
async fn an_aborted_transaction_and_a_deadlock_say_so() {
    let (mut one, mut two) = (connection().await, connection().await);
    let (a, b) = (fresh_key(), fresh_key());
    undone(&mut one, async |first| {
        run(first, "SELECT 1/0".to_owned()).await.unwrap_err();
        let error = first.xact_lock(a).within(MOMENT).await.unwrap_err();
        assert!(matches!(error, XactLockError::Aborted { .. }), "{error:?}");
        Ok(())
    })
    .await;
    let both = tokio::sync::Barrier::new(2);
    let crosses = async |connection: &mut AsyncPgConnection, mine, other| {
        undone(connection, async |tx| {
            tx.xact_lock(mine).within(LONG).await?;
            both.wait().await;
            match tx.xact_lock(other).within(LONG).await {
                Ok(()) => Ok(true),
                Err(error) => {
                    assert!(matches!(error, XactLockError::Deadlock { .. }), "{error:?}");
                    Ok(false)
                }
            }
        })
        .await
    };
    let (one, two) = tokio::join!(crosses(&mut one, a, b), crosses(&mut two, b, a));
    assert!(one != two, "one of them is the victim");
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let mut one = AsyncPgConnection::establish(&proxy.url()).await.unwrap();
    let silent = one.transaction(async |tx| {
        proxy.freeze();
        let error = tx.try_xact_lock(fresh_key()).await.unwrap_err();
        proxy.thaw();
        assert!(matches!(error, XactLockError::NoAnswer { .. }), "{error:?}");
        QueryResult::Ok(())
    });
    silent.await.unwrap();
}

#[tokio::test]
async fn a_waiter_whose_session_ends_is_told() {
    let (mut two, key) = (connection().await, fresh_key());
    let first = holder(key).await;
    let pid = pid(&mut two).await;
    let waits = two.transaction(async |tx| {
        let error = tx.xact_lock(key).within(LONG).await.unwrap_err();
        assert!(matches!(error, XactLockError::ConnectionLost { .. }), "{error:?}");
        Err::<(), Failure>(error.into())
    });
    let (waited, ()) = tokio::join!(waits, async {
        becomes(key, (1, 1)).await;
        terminate(pid);
    });
    waited.unwrap_err();
    end(first).await;
    becomes(key, (0, 0)).await;
}

#[tokio::test]
async fn a_hot_standby_is_refused() {
    let primary = Cluster::start().unwrap();
    let standby = primary.standby().unwrap();
    let mut one = AsyncPgConnection::establish(&standby.url()).await.unwrap();
    let error = undone(&mut one, async |tx| Ok(tx.try_xact_lock(fresh_key()).await)).await;
    assert!(matches!(error, Err(XactLockError::Standby { .. })), "{error:?}");
}
