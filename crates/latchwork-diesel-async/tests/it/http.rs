//! The provider of transactions for HTTP requests.

use std::time::{Duration, Instant};

use diesel_async::{AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _};
use latchwork_core::Mode;
use latchwork_diesel_async::{DieselAsyncTx, Key, PooledTx, XactLockExt as _};
use latchwork_harness::{Cluster, Proxy, StopMode};
use latchwork_http::{
    Rejection, RejectionKind, TxLockPolicy, TxProvider as _,
    http::Request,
    tx::{OpenTx, SqlValue, TxError, TxRequest},
};

use crate::support::{
    Bb8, CLUSTER, Deadpool, LONG, TestPool, answers, becomes, count, count_one, counter, end, fresh_key, holder,
    is_clean, is_free, pid, polled, pool, run, seen, terminate,
};

fn request(key: Key) -> TxRequest {
    TxRequest::new(key).with_answer_within(LONG)
}

async fn begin(pool: &impl AnyPool, request: TxRequest) -> Result<Option<PooledTx>, TxError> {
    pool.provider().begin(request).await
}

trait AnyPool: TestPool {
    fn provider(&self) -> DieselAsyncTx;
}

impl AnyPool for Deadpool {
    fn provider(&self) -> DieselAsyncTx {
        self.clone().into()
    }
}

impl AnyPool for Bb8 {
    fn provider(&self) -> DieselAsyncTx {
        self.clone().into()
    }
}

async fn begun(pool: &impl AnyPool, key: Key) -> PooledTx {
    begin(pool, request(key)).await.unwrap().expect("it is free")
}

#[tokio::test]
async fn it_commits_and_rolls_back_and_others_find_it_busy() {
    commits_and_rolls_back::<Deadpool>().await;
    commits_and_rolls_back::<Bb8>().await;
}

async fn commits_and_rolls_back<P: AnyPool>() {
    let (pool, key, table) = (P::of(&CLUSTER.url(), 2), fresh_key(), counter());
    for (commit, stored) in [(true, "1"), (false, "1")] {
        let mut tx = begun(&pool, key).await;
        assert_eq!(seen(key), (1, 0));
        assert!(begin(&pool, request(key)).await.unwrap().is_none());
        count_one(&mut tx, &table).await.unwrap();
        if commit {
            DieselAsyncTx::commit(tx).await.unwrap();
        } else {
            DieselAsyncTx::rollback(tx).await.unwrap();
        }
        assert!(is_free(key));
        assert_eq!(count(&table), stored);
    }
}

#[tokio::test]
async fn what_is_dropped_is_rolled_back() {
    rolls_back::<Deadpool>().await;
    rolls_back::<Bb8>().await;
}

async fn rolls_back<P: AnyPool>() {
    let (pool, key, table) = (P::of(&CLUSTER.url(), 1), fresh_key(), counter());
    let mut tx = begun(&pool, key).await;
    count_one(&mut tx, &table).await.unwrap();
    drop(tx);
    becomes(key, (0, 0)).await;
    is_clean(&pool).await;
    assert_eq!(count(&table), "0");
}

#[tokio::test]
async fn it_waits_if_it_is_told_to_and_shares() {
    waits_and_shares::<Deadpool>().await;
    waits_and_shares::<Bb8>().await;
}

async fn waits_and_shares<P: AnyPool>() {
    let (pool, key) = (P::of(&CLUSTER.url(), 2), fresh_key());
    let first = begun(&pool, key).await;
    let (second, ()) = tokio::join!(begin(&pool, request(key).with_wait(LONG)), async {
        becomes(key, (1, 1)).await;
        DieselAsyncTx::rollback(first).await.unwrap();
    });
    let second = second.unwrap().expect("it came free");
    let late = begin(&pool, request(key).with_wait(Duration::from_millis(50))).await;
    assert!(late.unwrap().is_none());
    DieselAsyncTx::rollback(second).await.unwrap();
    let shared = || request(key).with_mode(Mode::Shared);
    let one = begin(&pool, shared()).await.unwrap().unwrap();
    let two = begin(&pool, shared()).await.unwrap().unwrap();
    assert_eq!(seen(key), (2, 0));
    DieselAsyncTx::commit(one).await.unwrap();
    DieselAsyncTx::commit(two).await.unwrap();
}

#[tokio::test]
async fn a_handler_has_diesels_own_connection_and_may_lock_more() {
    let (pool, key, more, table) = (pool(&CLUSTER.url(), 1), fresh_key(), fresh_key(), counter());
    let mut tx = begun(&pool, key).await;
    tx.xact_lock(more).within(LONG).await.unwrap();
    let savepoint = tx.transaction(async |tx| {
        count_one(tx, &table).await?;
        Err::<(), _>(diesel::result::Error::RollbackTransaction)
    });
    savepoint.await.unwrap_err();
    let update = format!("UPDATE {table} SET n = n + 1");
    assert_eq!(diesel::sql_query(update.clone()).execute(&mut tx).await.unwrap(), 1);
    let own: &mut AsyncPgConnection = &mut tx;
    count_one(own, &table).await.unwrap();
    assert_eq!((seen(key), seen(more)), ((1, 0), (1, 0)));
    DieselAsyncTx::commit(tx).await.unwrap();
    assert_eq!(count(&table), "2");
    // As the layers lend it.
    let open = admitted(&policy(&pool, key)).await.unwrap();
    let mut lent = open.slot().check_out().unwrap();
    assert_eq!(diesel::sql_query(update).execute(&mut lent).await.unwrap(), 1);
    drop((lent, open));
    becomes(key, (0, 0)).await;
    assert_eq!(count(&table), "2");
    is_clean(&pool).await;
}

#[tokio::test]
async fn commit_tells_what_came_of_it() {
    tells_what_came_of_it::<Deadpool>().await;
    tells_what_came_of_it::<Bb8>().await;
}

async fn tells_what_came_of_it<P: AnyPool>() {
    let (pool, table) = (P::of(&CLUSTER.url(), 1), counter());
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
        let error = DieselAsyncTx::commit(tx).await.unwrap_err();
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
    let error = DieselAsyncTx::commit(tx).await.unwrap_err();
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
        let row = DieselAsyncTx::query(&mut tx, "SELECT $1, $2, $3::text, NULL::bytea", &values)
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
        DieselAsyncTx::query(&mut tx, "SELECT 'x'::text WHERE false", &[])
            .await
            .unwrap()
            .is_none()
    );
    // Beside those that ask for locks.
    let left = "SELECT count(*)::text FROM pg_prepared_statements WHERE statement NOT LIKE '%advisory%'";
    let left = DieselAsyncTx::query(&mut tx, left, &[]).await.unwrap();
    assert_eq!(left.unwrap()[0].as_deref(), Some(&b"0"[..]));
    let other = DieselAsyncTx::query(&mut tx, "SELECT 1", &[]).await.unwrap_err();
    assert!(matches!(other, TxError::Other(_)), "{other:?}");
    let setup = DieselAsyncTx::query(&mut tx, "SELECT 1 FROM nowhere", &[])
        .await
        .unwrap_err();
    assert!(matches!(setup, TxError::Setup(_)), "{setup:?}");
    let aborted = DieselAsyncTx::query(&mut tx, "SELECT 'x'::text", &[])
        .await
        .unwrap_err();
    assert!(matches!(aborted, TxError::Aborted(_)), "{aborted:?}");
    DieselAsyncTx::rollback(tx).await.unwrap();
    is_clean(&pool).await;
}

/// Not when the pool's own patience of half a minute is over, nor never.
#[tokio::test]
async fn a_database_that_cannot_be_had_is_unavailable_in_time() {
    is_unavailable_in_time::<Deadpool>().await;
    is_unavailable_in_time::<Bb8>().await;
}

async fn is_unavailable_in_time<P: AnyPool>() {
    let limit = Duration::from_millis(300);
    let cluster = Cluster::start().unwrap();
    let stopped = P::of(&cluster.url(), 1);
    drop(stopped.connection().await);
    cluster.stop(StopMode::Fast).unwrap();
    let exhausted = P::of(&CLUSTER.url(), 1);
    let taken = exhausted.connection().await;
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let silent = P::of(&proxy.url(), 1);
    drop(silent.connection().await);
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
    ends_what_runs_on::<Deadpool>().await;
    ends_what_runs_on::<Bb8>().await;
}

async fn ends_what_runs_on<P: AnyPool>() {
    let (pool, key) = (P::of(&CLUSTER.url(), 1), fresh_key());
    let asked = TxRequest::new(key).with_answer_within(Duration::from_secs(2));
    let mut tx = begin(&pool, asked).await.unwrap().unwrap();
    let sleep = format!("SELECT pg_sleep(600) AS s{}", fastrand::u64(..));
    let running = format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{sleep}' AND state = 'active'");
    tokio::select! {
        biased;
        slept = run(&mut tx, sleep) => panic!("{slept:?}"),
        () = answers(running.clone(), "1") => {}
    }
    let error = DieselAsyncTx::rollback(tx).await.unwrap_err();
    assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
    becomes(key, (0, 0)).await;
    answers(running, "0").await;
    is_clean(&pool).await;
}

#[tokio::test]
async fn what_others_have_left_open_is_not_committed() {
    commits_nothing_of_others::<Deadpool>().await;
    commits_nothing_of_others::<Bb8>().await;
}

async fn commits_nothing_of_others<P: AnyPool>() {
    let (pool, key, table) = (P::of(&CLUSTER.url(), 1), fresh_key(), counter());
    for last in ["SELECT 1", "SELECT 1/0"] {
        let mut connection = pool.connection().await;
        run(&mut connection, format!("BEGIN; UPDATE {table} SET n = 5"))
            .await
            .unwrap();
        let _ = run(&mut connection, last.to_owned()).await;
        drop(connection);
        let tx = begun(&pool, key).await;
        assert_eq!(seen(key), (1, 0));
        DieselAsyncTx::commit(tx).await.unwrap();
        is_clean(&pool).await;
    }
    assert_eq!(count(&table), "0");
}

type Policy = TxLockPolicy<Request<()>, DieselAsyncTx>;

fn policy(pool: &impl AnyPool, key: Key) -> Policy {
    let policy: Policy = TxLockPolicy::new(pool.provider(), key).unwrap();
    policy.answer_within(LONG)
}

async fn admitted(policy: &Policy) -> Result<OpenTx<DieselAsyncTx>, Rejection> {
    policy
        .attempt(&Request::new(()))?
        .expect("it needs a transaction")
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_leaves_anywhere_leaves_nothing() {
    leaves_nothing::<Deadpool>().await;
    leaves_nothing::<Bb8>().await;
}

async fn leaves_nothing<P: AnyPool>() {
    let pool = P::of(&CLUSTER.url(), 1);
    // Whoever waits is woken once, when there is an answer.
    for (is_held, most) in [(false, 4), (true, 1)] {
        for polls in 0..=most {
            let key = fresh_key();
            let first = if is_held { Some(holder(key).await) } else { None };
            let policy = policy(&pool, key).wait(LONG);
            drop(polled(polls, admitted(&policy)).await);
            becomes(key, (u32::from(is_held), 0)).await;
            is_clean(&pool).await;
            if let Some(first) = first {
                end(first).await;
            }
        }
    }
}

/// The first stops waiting, and its connection is the next one's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_has_left_stops_waiting() {
    stops_waiting::<Deadpool>().await;
    stops_waiting::<Bb8>().await;
}

async fn stops_waiting<P: AnyPool>() {
    let (pool, key) = (P::of(&CLUSTER.url(), 1), fresh_key());
    let first = holder(key).await;
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
    end(first).await;
    drop(admitted(&policy(&pool, key)).await.unwrap());
    becomes(key, (0, 0)).await;
}
