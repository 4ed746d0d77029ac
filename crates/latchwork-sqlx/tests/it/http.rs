//! The provider of transactions for HTTP requests.

use std::time::{Duration, Instant};

use latchwork_core::Mode;
use latchwork_harness::{Cluster, Proxy, StopMode, wait_until};
use latchwork_http::{
    Rejection, RejectionKind, TxLockPolicy, TxProvider as _,
    http::Request,
    tx::{OpenTx, SqlValue, TxError, TxRequest},
};
use latchwork_sqlx::{Key, PooledTx, SqlxTx, XactLockExt as _};
use sqlx::{Connection as _, PgPool};
use tokio::task::spawn_blocking;

use crate::support::{
    CLUSTER, LONG, becomes, connection, count, count_one, counter, fresh_key, holder, is_clean, is_free, pid, polled,
    pool, run, seen, terminate,
};

fn request(key: Key) -> TxRequest {
    TxRequest::new(key).with_answer_within(LONG)
}

async fn begin(pool: &PgPool, request: TxRequest) -> Result<Option<PooledTx>, TxError> {
    SqlxTx::from(pool.clone()).begin(request).await
}

async fn begun(pool: &PgPool, key: Key) -> PooledTx {
    begin(pool, request(key)).await.unwrap().expect("it is free")
}

#[tokio::test]
async fn it_commits_and_rolls_back_and_others_find_it_busy() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 2), fresh_key(), counter());
    for (commit, stored) in [(true, "1"), (false, "1")] {
        let mut tx = begun(&pool, key).await;
        assert_eq!(seen(key), (1, 0));
        assert!(begin(&pool, request(key)).await.unwrap().is_none());
        count_one(&mut tx, &table).await.unwrap();
        if commit {
            SqlxTx::commit(tx).await.unwrap();
        } else {
            SqlxTx::rollback(tx).await.unwrap();
        }
        assert!(is_free(key));
        assert_eq!(count(&table), stored);
    }
}

#[tokio::test]
async fn what_is_dropped_is_rolled_back() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), counter());
    let mut tx = begun(&pool, key).await;
    count_one(&mut tx, &table).await.unwrap();
    drop(tx);
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
    assert_eq!(count(&table), "0");
}

#[tokio::test]
async fn it_waits_if_it_is_told_to_and_shares() {
    let (pool, key) = (pool(&CLUSTER.url(), 2), fresh_key());
    let first = begun(&pool, key).await;
    let (second, ()) = tokio::join!(begin(&pool, request(key).with_wait(LONG)), async {
        becomes(key, (1, 1)).await;
        SqlxTx::rollback(first).await.unwrap();
    });
    let second = second.unwrap().expect("it came free");
    let late = begin(&pool, request(key).with_wait(Duration::from_millis(50))).await;
    assert!(late.unwrap().is_none());
    SqlxTx::rollback(second).await.unwrap();
    let shared = || request(key).with_mode(Mode::Shared);
    let one = begin(&pool, shared()).await.unwrap().unwrap();
    let two = begin(&pool, shared()).await.unwrap().unwrap();
    assert_eq!(seen(key), (2, 0));
    SqlxTx::commit(one).await.unwrap();
    SqlxTx::commit(two).await.unwrap();
}

#[tokio::test]
async fn a_handler_has_sqlxs_own_transaction_and_may_lock_more() {
    let (pool, key, more, table) = (pool(&CLUSTER.url(), 1), fresh_key(), fresh_key(), counter());
    let mut tx = begun(&pool, key).await;
    tx.xact_lock(more).within(LONG).await.unwrap();
    let mut savepoint = tx.begin().await.unwrap();
    count_one(&mut savepoint, &table).await.unwrap();
    savepoint.rollback().await.unwrap();
    let own: &mut sqlx::PgTransaction<'static> = &mut tx;
    count_one(own, &table).await.unwrap();
    assert_eq!((seen(key), seen(more)), ((1, 0), (1, 0)));
    SqlxTx::commit(tx).await.unwrap();
    assert_eq!(count(&table), "1");
    is_clean(&pool).await;
}

#[tokio::test]
async fn commit_tells_what_came_of_it() {
    let (pool, table) = (pool(&CLUSTER.url(), 1), counter());
    let unchecked = format!(
        "ALTER TABLE {table} ADD UNIQUE (n); \
         CREATE TABLE {table}_child (n int REFERENCES {table} (n) DEFERRABLE INITIALLY DEFERRED)"
    );
    CLUSTER.psql(&unchecked).unwrap();
    for (does, is_aborted) in [
        ("SELECT 1/0".to_owned(), true),
        (format!("INSERT INTO {table}_child VALUES (404)"), true),
        ("COMMIT".to_owned(), false),
        ("ROLLBACK".to_owned(), false),
    ] {
        let key = fresh_key();
        let mut tx = begun(&pool, key).await;
        // A handler that passes no error on.
        let _ = run(&mut tx, does.clone()).await;
        let error = SqlxTx::commit(tx).await.unwrap_err();
        let as_expected = match &error {
            TxError::Aborted(_) => is_aborted,
            TxError::OutcomeUnknown(_) => !is_aborted,
            _ => false,
        };
        assert!(as_expected, "{does}: {error:?}");
        becomes(key, (0, 0)).await;
        is_clean(&pool).await;
    }
    let mut tx = begun(&pool, fresh_key()).await;
    terminate(pid(&mut tx).await);
    let error = SqlxTx::commit(tx).await.unwrap_err();
    assert!(matches!(error, TxError::OutcomeUnknown(_)), "{error:?}");
    is_clean(&pool).await;
}

#[tokio::test]
async fn statements_of_the_layers_have_text_bytes_and_numbers() {
    let pool = pool(&CLUSTER.url(), 1);
    let mut tx = begun(&pool, fresh_key()).await;
    let values = [
        SqlValue::Text("a'b"),
        SqlValue::Bytes(b"\0\xff"),
        SqlValue::Int(i64::MIN),
    ];
    for _ in 0..2 {
        let row = SqlxTx::query(&mut tx, "SELECT $1, $2, $3::text, NULL::bytea", &values)
            .await
            .unwrap();
        let row: Vec<_> = row.unwrap().into_iter().map(|column| column.map(Vec::from)).collect();
        let number = i64::MIN.to_string().into_bytes();
        assert_eq!(
            row,
            [Some(b"a'b".to_vec()), Some(b"\0\xff".to_vec()), Some(number), None]
        );
    }
    assert!(
        SqlxTx::query(&mut tx, "SELECT 'x'::text WHERE false", &[])
            .await
            .unwrap()
            .is_none()
    );
    // Nothing is left on a session that a pooler gives to the next.
    let left = SqlxTx::query(&mut tx, "SELECT count(*)::text FROM pg_prepared_statements", &[])
        .await
        .unwrap();
    assert_eq!(left.unwrap()[0].as_deref(), Some(&b"0"[..]));
    let other = SqlxTx::query(&mut tx, "SELECT 1", &[]).await.unwrap_err();
    assert!(matches!(other, TxError::Other(_)), "{other:?}");
    let setup = SqlxTx::query(&mut tx, "SELECT 1 FROM nowhere", &[]).await.unwrap_err();
    assert!(matches!(setup, TxError::Setup(_)), "{setup:?}");
    let aborted = SqlxTx::query(&mut tx, "SELECT 'x'::text", &[]).await.unwrap_err();
    assert!(matches!(aborted, TxError::Aborted(_)), "{aborted:?}");
    SqlxTx::rollback(tx).await.unwrap();
    is_clean(&pool).await;
}

/// Not when the pool's own patience of half a minute is over, nor never.
#[tokio::test]
async fn a_database_that_cannot_be_had_is_unavailable_in_time() {
    let limit = Duration::from_millis(300);
    let cluster = Cluster::start().unwrap();
    let stopped = pool(&cluster.url(), 1);
    drop(stopped.acquire().await.unwrap());
    cluster.stop(StopMode::Fast).unwrap();
    let exhausted = pool(&CLUSTER.url(), 1);
    let taken = exhausted.acquire().await.unwrap();
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let silent = pool(&proxy.url(), 1);
    drop(silent.acquire().await.unwrap());
    proxy.freeze();
    for pool in [&stopped, &exhausted, &silent] {
        let asked = Instant::now();
        let error = begin(pool, TxRequest::new(fresh_key()).with_answer_within(limit))
            .await
            .unwrap_err();
        assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
        assert!(asked.elapsed() < LONG / 2, "{:?}", asked.elapsed());
    }
    proxy.thaw();
    drop(taken);
    is_clean(&exhausted).await;
    is_clean(&silent).await;
}

/// A handler that is dropped in the middle of a statement: its session is ended after the limit.
#[tokio::test]
async fn a_statement_that_runs_on_does_not_keep_the_lock() {
    let (pool, key) = (pool(&CLUSTER.url(), 1), fresh_key());
    let asked = TxRequest::new(key).with_answer_within(Duration::from_secs(2));
    let mut tx = begin(&pool, asked).await.unwrap().unwrap();
    let sleep = format!("SELECT pg_sleep(600) AS s{}", fastrand::u64(..));
    let running = format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{sleep}' AND state = 'active'");
    tokio::select! {
        biased;
        slept = run(&mut tx, sleep) => panic!("{slept:?}"),
        () = answers(running.clone(), "1") => {}
    }
    let error = SqlxTx::rollback(tx).await.unwrap_err();
    assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
    becomes(key, (0, 0)).await;
    answers(running, "0").await;
    is_clean(&pool).await;
}

#[tokio::test]
async fn what_others_have_left_open_is_not_committed() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), counter());
    for last in ["SELECT 1", "SELECT 1/0"] {
        let mut connection = pool.acquire().await.unwrap();
        run(&mut connection, format!("BEGIN; UPDATE {table} SET n = 5"))
            .await
            .unwrap();
        let _ = run(&mut connection, last.to_owned()).await;
        drop(connection);
        let tx = begun(&pool, key).await;
        assert_eq!(seen(key), (1, 0));
        SqlxTx::commit(tx).await.unwrap();
        is_clean(&pool).await;
    }
    assert_eq!(count(&table), "0");
}

type Policy = TxLockPolicy<Request<()>, SqlxTx>;

fn policy(pool: &PgPool, key: Key) -> Policy {
    let policy: Policy = TxLockPolicy::new(pool.clone(), key).unwrap();
    policy.answer_within(LONG)
}

async fn admitted(policy: &Policy) -> Result<OpenTx<SqlxTx>, Rejection> {
    policy
        .attempt(&Request::new(()))?
        .expect("it needs a transaction")
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_leaves_anywhere_leaves_nothing() {
    let (pool, mut other) = (pool(&CLUSTER.url(), 1), connection().await);
    // Whoever waits is woken once, when there is an answer.
    for (is_held, most) in [(false, 4), (true, 1)] {
        for polls in 0..=most {
            let key = fresh_key();
            let first = if is_held {
                Some(holder(&mut other, key).await)
            } else {
                None
            };
            let policy = policy(&pool, key).wait(LONG);
            drop(polled(polls, admitted(&policy)).await);
            becomes(key, (u32::from(is_held), 0)).await;
            is_clean(&pool).await;
            if let Some(first) = first {
                first.rollback().await.unwrap();
            }
        }
    }
}

/// The first stops waiting, and its connection is the next one's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_has_left_stops_waiting() {
    let (pool, key, mut other) = (pool(&CLUSTER.url(), 1), fresh_key(), connection().await);
    let first = holder(&mut other, key).await;
    // Longer than the test would last.
    let waiting = policy(&pool, key).wait(100 * LONG);
    let left = tokio::select! {
        biased;
        admitted = admitted(&waiting) => Some(admitted.is_ok()),
        () = becomes(key, (1, 1)) => None,
    };
    assert_eq!(left, None);
    becomes(key, (1, 0)).await;
    is_clean(&pool).await;
    let busy = admitted(&policy(&pool, key)).await.unwrap_err();
    assert_eq!(busy.kind(), RejectionKind::LockBusy);
    first.rollback().await.unwrap();
    drop(admitted(&policy(&pool, key)).await.unwrap());
    becomes(key, (0, 0)).await;
}

/// Waits until psql answers a question with this.
async fn answers(question: String, expected: &'static str) {
    let asked = question.clone();
    let reached = spawn_blocking(move || wait_until(LONG, || CLUSTER.psql(&asked).unwrap() == expected));
    let now = CLUSTER.psql(&question);
    assert!(reached.await.unwrap(), "{question}: {expected}, not {now:?}");
}
