//! Transaction scope: locks that belong to a transaction of the caller.

mod ends;
mod locked;
mod several;
mod worlds;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use latchwork_core::Key;
use latchwork_harness::{Cluster, wait_until};
use latchwork_postgres::transaction::{XactLockError, XactLockExt as _};
use tokio_postgres::{Client, IsolationLevel, NoTls, SimpleQueryMessage, Transaction};

static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::builder().setting("max_connections", 200).start().unwrap());

const MOMENT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(20);
/// More than the longest slice of a wait.
const SOON: Duration = Duration::from_secs(3);

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn fresh_key() -> Key {
    Key::bigint(fastrand::i64(..))
}

/// How many sessions hold the key, and how many wait for it, as the server sees it.
fn seen(cluster: &Cluster, key: Key) -> (u32, u32) {
    let counts = cluster.psql(&format!(
        "SELECT count(*) FILTER (WHERE granted), count(*) FILTER (WHERE NOT granted) FROM pg_locks \
         WHERE locktype = 'advisory' AND classid = {} AND objid = {} AND objsubid = {}",
        key.classid(),
        key.objid(),
        key.objsubid()
    ));
    let counts = counts.unwrap();
    let (granted, waiting) = counts.split_once('|').unwrap();
    (granted.parse().unwrap(), waiting.parse().unwrap())
}

async fn becomes(cluster: &'static Cluster, key: Key, expected: (u32, u32)) {
    let reached = move || wait_until(LONG, || seen(cluster, key) == expected);
    assert!(
        tokio::task::spawn_blocking(reached).await.unwrap(),
        "{expected:?}, not {:?}",
        seen(cluster, key)
    );
}

async fn shown(transaction: &Transaction<'_>, setting: &str) -> String {
    let answered = transaction.simple_query(&format!("SHOW {setting}")).await.unwrap();
    let row = answered.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap().to_owned()),
        _ => None,
    });
    row.unwrap()
}

async fn is_usable(transaction: &Transaction<'_>) -> bool {
    transaction.batch_execute("SELECT 1").await.is_ok()
}

#[tokio::test]
async fn a_lock_is_held_until_the_transaction_ends_either_way() {
    let mut client = client(&CLUSTER.url()).await;
    for key in [
        fresh_key(),
        Key::bigint(i64::MIN),
        Key::bigint(i64::MAX),
        Key::pair(i32::MIN, i32::MAX),
    ] {
        for commit in [true, false] {
            let transaction = client.transaction().await.unwrap();
            transaction.xact_lock(key).within(LONG).await.unwrap();
            assert_eq!(seen(&CLUSTER, key), (1, 0), "{key}");
            let ended = if commit {
                transaction.commit().await
            } else {
                transaction.rollback().await
            };
            ended.unwrap();
            assert_eq!(seen(&CLUSTER, key), (0, 0), "{key}");
        }
        let transaction = client.transaction().await.unwrap();
        assert!(transaction.try_xact_lock(key).await.unwrap());
        assert_eq!(seen(&CLUSTER, key), (1, 0), "{key}");
    }
}

#[tokio::test]
async fn a_second_transaction_waits_until_the_first_has_ended() {
    let (mut one, mut two) = (client(&CLUSTER.url()).await, client(&CLUSTER.url()).await);
    for limited in [true, false] {
        let key = fresh_key();
        let first = one.transaction().await.unwrap();
        first.xact_lock(key).without_limit().await.unwrap();
        let second = two.transaction().await.unwrap();
        assert!(!second.try_xact_lock(key).await.unwrap());
        let lock = second.xact_lock(key);
        let waiting = if limited {
            lock.within(LONG)
        } else {
            lock.without_limit()
        };
        let (granted, ()) = tokio::join!(waiting, async {
            becomes(&CLUSTER, key, (1, 1)).await;
            first.commit().await.unwrap();
        });
        granted.unwrap();
        assert_eq!(seen(&CLUSTER, key), (1, 0));
    }
}

#[tokio::test]
async fn shared_locks_go_together_and_keep_exclusive_ones_out() {
    let (mut one, mut two) = (client(&CLUSTER.url()).await, client(&CLUSTER.url()).await);
    let key = fresh_key();
    let first = one.transaction().await.unwrap();
    first.xact_lock_shared(key).within(LONG).await.unwrap();
    let second = two.transaction().await.unwrap();
    assert!(second.try_xact_lock_shared(key).await.unwrap());
    assert!(!second.try_xact_lock(key).await.unwrap());
    assert!(second.xact_lock(key).within(MOMENT).await.unwrap_err().is_timeout());
    assert_eq!(seen(&CLUSTER, key), (2, 0));
    drop(second);
    drop(first);
    let first = one.transaction().await.unwrap();
    first.xact_lock(key).within(LONG).await.unwrap();
    let second = two.transaction().await.unwrap();
    assert!(!second.try_xact_lock_shared(key).await.unwrap());
    assert!(
        second
            .xact_lock_shared(key)
            .within(MOMENT)
            .await
            .unwrap_err()
            .is_timeout()
    );
}

#[tokio::test]
async fn a_limit_that_runs_out_leaves_the_transaction_and_its_lock_timeout_as_they_were() {
    let cluster = Cluster::start().unwrap();
    let (mut one, mut two) = (client(&cluster.url()).await, client(&cluster.url()).await);
    let (taken, free) = (fresh_key(), fresh_key());
    let first = one.transaction().await.unwrap();
    first.xact_lock(taken).within(LONG).await.unwrap();
    for (set, expected) in [
        ("SELECT 1", "0"),
        ("SET LOCAL lock_timeout = '7s'", "7s"),
        ("SET lock_timeout = '8s'", "8s"),
        ("SET LOCAL lock_timeout = 1", "1ms"),
    ] {
        two.batch_execute("SET lock_timeout = 0").await.unwrap();
        let second = two.transaction().await.unwrap();
        second.batch_execute(set).await.unwrap();
        second
            .batch_execute("CREATE TEMP TABLE work (n int) ON COMMIT DROP")
            .await
            .unwrap();
        let begun = Instant::now();
        let error = second.xact_lock(taken).within(MOMENT).await.unwrap_err();
        assert!(
            matches!(&error, XactLockError::TimedOut { keys, limit } if *keys == taken.into() && *limit == MOMENT),
            "{error:?}"
        );
        assert!(
            (MOMENT..Duration::from_secs(2)).contains(&begun.elapsed()),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(shown(&second, "lock_timeout").await, expected);
        second.xact_lock(free).within(LONG).await.unwrap();
        assert_eq!(shown(&second, "lock_timeout").await, expected);
        second.batch_execute("INSERT INTO work VALUES (1)").await.unwrap();
        second.commit().await.unwrap();
    }
    assert_eq!(seen(&cluster, taken), (1, 0));
    let log = cluster.log();
    assert!(
        !["WARNING:", "ERROR:", "FATAL:"].iter().any(|word| log.contains(word)),
        "{log}"
    );
}

#[tokio::test]
async fn zero_is_one_attempt_and_tiny_limits_work() {
    let (mut one, mut two) = (client(&CLUSTER.url()).await, client(&CLUSTER.url()).await);
    let (taken, free) = (fresh_key(), fresh_key());
    let first = one.transaction().await.unwrap();
    first.xact_lock(taken).within(LONG).await.unwrap();
    let second = two.transaction().await.unwrap();
    for limit in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(300),
        Duration::from_millis(1),
    ] {
        let begun = Instant::now();
        assert!(
            second.xact_lock(taken).within(limit).await.unwrap_err().is_timeout(),
            "{limit:?}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{limit:?}: {:?}",
            begun.elapsed()
        );
        second.xact_lock(free).within(limit).await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_under_a_savepoint_goes_when_it_is_rolled_back_to() {
    let mut client = client(&CLUSTER.url()).await;
    let (outer, inner, kept) = (fresh_key(), fresh_key(), fresh_key());
    let mut transaction = client.transaction().await.unwrap();
    transaction.xact_lock(outer).within(LONG).await.unwrap();
    let savepoint = transaction.savepoint("before").await.unwrap();
    savepoint.xact_lock(inner).within(LONG).await.unwrap();
    assert_eq!(seen(&CLUSTER, inner), (1, 0));
    savepoint.rollback().await.unwrap();
    assert_eq!((seen(&CLUSTER, outer), seen(&CLUSTER, inner)), ((1, 0), (0, 0)));
    let savepoint = transaction.savepoint("again").await.unwrap();
    savepoint.xact_lock(kept).within(LONG).await.unwrap();
    savepoint.commit().await.unwrap();
    assert_eq!(seen(&CLUSTER, kept), (1, 0));
    assert_eq!(shown(&transaction, "lock_timeout").await, "0");
}

#[tokio::test]
async fn snapshots_older_than_the_lock_are_refused_unless_allowed() {
    let mut client = client(&CLUSTER.url()).await;
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let key = fresh_key();
        let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
        let name = shown(&transaction, "transaction_isolation").await;
        let by_try = transaction.try_xact_lock(key).await.unwrap_err();
        let by_wait = transaction.xact_lock(key).within(LONG).await.unwrap_err();
        for error in [by_try, by_wait] {
            assert!(
                matches!(&error, XactLockError::StaleSnapshot { isolation, .. } if *isolation == name),
                "{error:?}"
            );
            assert!(error.leaves_transaction_usable());
            assert!(error.to_string().contains("READ COMMITTED"), "{error}");
        }
        assert_eq!(seen(&CLUSTER, key), (0, 0));
        assert!(is_usable(&transaction).await);
        transaction
            .xact_lock(key)
            .allow_stale_snapshot()
            .within(LONG)
            .await
            .unwrap();
        assert_eq!(seen(&CLUSTER, key), (1, 0));
    }
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadUncommitted)
        .start()
        .await
        .unwrap();
    assert!(transaction.try_xact_lock(fresh_key()).await.unwrap());
}

#[tokio::test]
async fn the_work_sees_what_the_last_holder_committed() {
    CLUSTER
        .psql("CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)")
        .unwrap();
    let key = fresh_key();
    let mut workers = Vec::new();
    for _ in 0..8 {
        workers.push(tokio::spawn(async move {
            let mut client = client(&CLUSTER.url()).await;
            for _ in 0..25 {
                let transaction = client.transaction().await.unwrap();
                transaction.xact_lock(key).within(LONG).await.unwrap();
                let n: i32 = transaction
                    .query_one("SELECT n FROM counter", &[])
                    .await
                    .unwrap()
                    .get(0);
                transaction
                    .execute("UPDATE counter SET n = $1", &[&(n + 1)])
                    .await
                    .unwrap();
                transaction.commit().await.unwrap();
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(CLUSTER.psql("SELECT n FROM counter").unwrap(), "200");
}

#[tokio::test]
async fn an_aborted_transaction_and_a_deadlock_say_so() {
    let (mut one, mut two) = (client(&CLUSTER.url()).await, client(&CLUSTER.url()).await);
    let (a, b) = (fresh_key(), fresh_key());
    let first = one.transaction().await.unwrap();
    first.batch_execute("SELECT 1/0").await.unwrap_err();
    let error = first.xact_lock(a).within(MOMENT).await.unwrap_err();
    assert!(matches!(error, XactLockError::Aborted { .. }), "{error:?}");
    let error = first.try_xact_lock(a).await.unwrap_err();
    assert!(matches!(error, XactLockError::Aborted { .. }), "{error:?}");
    drop(first);

    let (first, second) = (one.transaction().await.unwrap(), two.transaction().await.unwrap());
    first.xact_lock(a).within(LONG).await.unwrap();
    second.xact_lock(b).within(LONG).await.unwrap();
    let (one, two) = tokio::join!(
        async {
            first
                .xact_lock(b)
                .within(LONG)
                .await
                .map(|()| true)
                .or_else(|e| deadlock(&e, first))
        },
        async {
            second
                .xact_lock(a)
                .within(LONG)
                .await
                .map(|()| true)
                .or_else(|e| deadlock(&e, second))
        },
    );
    assert_eq!(
        u8::from(one == Ok(true)) + u8::from(two == Ok(true)),
        1,
        "{one:?} {two:?}"
    );
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
}

/// The victim rolls back, so that the other can go on.
fn deadlock(error: &XactLockError, victim: Transaction<'_>) -> Result<bool, String> {
    drop(victim);
    if matches!(error, XactLockError::Deadlock { .. }) && error.is_retryable() {
        Ok(false)
    } else {
        Err(format!("{error:?}"))
    }
}
