//! The provider of transactions for HTTP requests.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use diesel::connection::SimpleConnection as _;
use latchwork_core::Mode;
use latchwork_diesel::{DieselTx, Key, PooledTx, XactLockExt as _};
use latchwork_harness::{Cluster, Proxy, StopMode};
use latchwork_http::{
    Rejection, RejectionKind, TxLockPolicy, TxProvider as _,
    http::Request,
    tx::{OpenTx, SqlValue, TxError, TxRequest},
};
use tokio::task::spawn_blocking;

use crate::support::{
    CLUSTER, LONG, PgPool, becomes, fresh_key, insert, is_clean, pid, pool, seen, stored, table, while_held,
};

fn request(key: Key) -> TxRequest {
    TxRequest::new(key).with_answer_within(LONG)
}

async fn begin(pool: &PgPool, request: TxRequest) -> Result<Option<PooledTx>, TxError> {
    DieselTx::from(pool.clone()).begin(request).await
}

async fn begun(pool: &PgPool, key: Key) -> PooledTx {
    begin(pool, request(key)).await.unwrap().expect("it is free")
}

async fn beside<T: Send + 'static>(waits: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(waits).await.unwrap()
}

async fn has(key: Key, expected: (u32, u32)) {
    beside(move || becomes(&CLUSTER, key, expected)).await;
}

/// The connection of a pool of one is back, and in order.
async fn is_back(pool: &PgPool) {
    let pool = pool.clone();
    beside(move || is_clean(&mut pool.get().unwrap())).await;
}

async fn stores(tx: &mut PooledTx, table: &str, number: i32) {
    let table = table.to_owned();
    tx.run(move |conn| insert(conn, &table, number)).await.unwrap();
}

#[tokio::test]
async fn it_commits_and_rolls_back_and_others_find_it_busy() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 2), fresh_key(), table());
    for (number, commit) in [(1, true), (2, false)] {
        let mut tx = begun(&pool, key).await;
        assert_eq!(seen(&CLUSTER, key), (1, 0));
        assert!(begin(&pool, request(key)).await.unwrap().is_none());
        stores(&mut tx, &table, number).await;
        if commit {
            DieselTx::commit(tx).await.unwrap();
        } else {
            DieselTx::rollback(tx).await.unwrap();
        }
        assert_eq!(seen(&CLUSTER, key), (0, 0));
        assert_eq!(stored(&table), [0, 1]);
    }
}

#[tokio::test]
async fn what_is_dropped_is_rolled_back() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), table());
    let mut tx = begun(&pool, key).await;
    stores(&mut tx, &table, 1).await;
    let session = tx.run(pid).await;
    drop(tx);
    is_back(&pool).await;
    assert_eq!((seen(&CLUSTER, key), stored(&table)), ((0, 0), vec![0]));
    assert_eq!(beside(move || pid(&mut pool.get().unwrap())).await, session);
}

#[tokio::test]
async fn it_waits_if_it_is_told_to_and_shares() {
    let (pool, key) = (pool(&CLUSTER.url(), 2), fresh_key());
    let first = begun(&pool, key).await;
    let (second, ()) = tokio::join!(begin(&pool, request(key).with_wait(LONG)), async {
        has(key, (1, 1)).await;
        DieselTx::rollback(first).await.unwrap();
    });
    let second = second.unwrap().expect("it came free");
    let late = begin(&pool, request(key).with_wait(Duration::from_millis(50))).await;
    assert!(late.unwrap().is_none());
    DieselTx::rollback(second).await.unwrap();
    let shared = || request(key).with_mode(Mode::Shared);
    let one = begin(&pool, shared()).await.unwrap().unwrap();
    let two = begin(&pool, shared()).await.unwrap().unwrap();
    assert_eq!(seen(&CLUSTER, key), (2, 0));
    DieselTx::commit(one).await.unwrap();
    DieselTx::commit(two).await.unwrap();
}

#[tokio::test]
async fn a_handler_has_diesels_own_connection_for_a_closure_and_may_lock_more() {
    let (pool, key, more, table) = (pool(&CLUSTER.url(), 1), fresh_key(), fresh_key(), table());
    let open = admitted(&policy(&pool, key)).await.unwrap();
    let mut lent = open.slot().check_out().unwrap();
    let undone = table.clone();
    let savepoint = lent.run(move |conn| {
        conn.xact_lock(more).within(LONG).unwrap();
        diesel::Connection::transaction(conn, |conn| {
            insert(conn, &undone, 1)?;
            Err::<(), _>(diesel::result::Error::RollbackTransaction)
        })
    });
    savepoint.await.unwrap_err();
    stores(&mut lent, &table, 2).await;
    assert_eq!((seen(&CLUSTER, key), seen(&CLUSTER, more)), ((1, 0), (1, 0)));
    drop(lent);
    policy(&pool, key)
        .end(open, Some(&latchwork_http::http::Response::new(())))
        .await
        .unwrap();
    assert_eq!(stored(&table), [0, 2]);
    is_back(&pool).await;
}

#[tokio::test]
async fn a_closure_that_panics_leaves_the_transaction_to_its_end() {
    let (pool, key) = (pool(&CLUSTER.url(), 1), fresh_key());
    let open = admitted(&policy(&pool, key)).await.unwrap();
    let mut lent = open.slot().check_out().unwrap();
    let panics = tokio::spawn(async move { lent.run(|_| panic!("as the test wants") as ()).await });
    assert!(panics.await.unwrap_err().is_panic());
    assert_eq!(seen(&CLUSTER, key), (1, 0));
    drop(open);
    is_back(&pool).await;
    assert_eq!(seen(&CLUSTER, key), (0, 0));
}

#[tokio::test]
async fn commit_tells_what_came_of_it() {
    let (pool, table) = (pool(&CLUSTER.url(), 1), table());
    let unchecked = format!(
        "ALTER TABLE {table} ADD UNIQUE (number); \
         CREATE TABLE {table}_child (n int REFERENCES {table} (number) DEFERRABLE INITIALLY DEFERRED)"
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
        let sql = does.clone();
        let _ = tx.run(move |conn| conn.batch_execute(&sql)).await;
        let error = DieselTx::commit(tx).await.unwrap_err();
        let as_expected = match &error {
            TxError::Aborted(_) => is_aborted,
            TxError::OutcomeUnknown(_) => !is_aborted,
            _ => false,
        };
        assert!(as_expected, "{does}: {error:?}");
        assert_eq!(seen(&CLUSTER, key), (0, 0));
        is_back(&pool).await;
    }
    for handler_notices in [false, true] {
        let mut tx = begun(&pool, fresh_key()).await;
        let session = tx.run(pid).await;
        CLUSTER
            .psql(&format!("SELECT pg_terminate_backend({session})"))
            .unwrap();
        if handler_notices {
            // A session that is ended says so a moment later.
            tx.run(|conn| while conn.batch_execute("SELECT 1").is_ok() {}).await;
        }
        let error = DieselTx::commit(tx).await.unwrap_err();
        let as_expected = match &error {
            TxError::Unavailable(_) => handler_notices,
            TxError::OutcomeUnknown(_) => !handler_notices,
            _ => false,
        };
        assert!(as_expected, "{error:?}");
        is_back(&pool).await;
    }
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
        let row = DieselTx::query(&mut tx, "SELECT $1, $2, $3::text, NULL::bytea", &values).await;
        let row: Vec<_> = row
            .unwrap()
            .unwrap()
            .into_iter()
            .map(|column| column.map(Vec::from))
            .collect();
        let number = i64::MIN.to_string().into_bytes();
        assert_eq!(
            row,
            [Some(b"a'b".to_vec()), Some(b"\0\xff".to_vec()), Some(number), None]
        );
    }
    let none = DieselTx::query(&mut tx, "SELECT 'x'::text WHERE false", &[]).await;
    assert!(none.unwrap().is_none());
    // Beside that by which r2d2 checks a connection.
    let left = "SELECT count(*)::text FROM pg_prepared_statements WHERE statement <> 'SELECT 1'";
    let left = DieselTx::query(&mut tx, left, &[]).await.unwrap();
    assert_eq!(left.unwrap()[0].as_deref(), Some(&b"0"[..]));
    let other = DieselTx::query(&mut tx, "SELECT 1", &[]).await.unwrap_err();
    assert!(matches!(other, TxError::Other(_)), "{other:?}");
    let setup = DieselTx::query(&mut tx, "SELECT 1 FROM nowhere", &[])
        .await
        .unwrap_err();
    assert!(matches!(setup, TxError::Setup(_)), "{setup:?}");
    let aborted = DieselTx::query(&mut tx, "SELECT 'x'::text", &[]).await.unwrap_err();
    assert!(matches!(aborted, TxError::Aborted(_)), "{aborted:?}");
    DieselTx::rollback(tx).await.unwrap();
    is_back(&pool).await;
}

/// Not when the pool's own patience of half a minute is over, nor never.
#[tokio::test]
async fn a_database_that_cannot_be_had_is_unavailable_in_time() {
    let limit = Duration::from_millis(300);
    let cluster = Cluster::start().unwrap();
    let stopped = pool(&cluster.url(), 1);
    cluster.stop(StopMode::Fast).unwrap();
    let exhausted = pool(&CLUSTER.url(), 1);
    let taken = exhausted.get().unwrap();
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let silent = pool(&proxy.url(), 1);
    proxy.freeze();
    for pool in [&stopped, &exhausted, &silent] {
        let asked = Instant::now();
        let error = begin(pool, TxRequest::new(fresh_key()).with_answer_within(limit)).await;
        let error = error.unwrap_err();
        assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
        assert!(asked.elapsed() < LONG / 2, "{:?}", asked.elapsed());
    }
    proxy.thaw();
    drop(taken);
    is_back(&exhausted).await;
    is_back(&silent).await;
}

/// Whatever the number of those who wait, it is not they who have the threads.
#[test]
fn those_who_wait_for_a_connection_do_not_keep_those_who_have_one_from_running() {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(2).build().unwrap();
    let (pool, table) = (pool(&CLUSTER.url(), 1), table());
    runtime.block_on(async {
        let provider = DieselTx::from(pool.clone());
        let mut requests = tokio::task::JoinSet::new();
        for number in 1..=20 {
            let (provider, table) = (provider.clone(), table.clone());
            requests.spawn(async move {
                let mut tx = provider.begin(request(fresh_key())).await.unwrap().unwrap();
                tokio::task::yield_now().await;
                stores(&mut tx, &table, number).await;
                DieselTx::commit(tx).await.unwrap();
            });
        }
        requests.join_all().await;
    });
    assert_eq!(stored(&table), (0..=20).collect::<Vec<_>>());
}

/// A handler that is dropped in the middle of a statement: its session is ended after the limit.
#[tokio::test]
async fn a_statement_that_runs_on_does_not_keep_the_lock() {
    let (pool, key) = (pool(&CLUSTER.url(), 2), fresh_key());
    is_back(&pool).await;
    let asked = TxRequest::new(key).with_answer_within(Duration::from_secs(1));
    let mut tx = begin(&pool, asked).await.unwrap().unwrap();
    sleeps(&mut tx, 600).await;
    let error = DieselTx::rollback(tx).await.unwrap_err();
    assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
    has(key, (0, 0)).await;
    is_back(&pool).await;
}

/// Runs a statement that takes so many seconds, and leaves when it runs.
async fn sleeps(tx: &mut PooledTx, seconds: u32) {
    let sleep = format!("SELECT pg_sleep({seconds}) AS s{}", fastrand::u64(..));
    let running = format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{sleep}' AND state = 'active'");
    tokio::select! {
        biased;
        slept = tx.run(move |conn| conn.batch_execute(&sleep)) => panic!("{slept:?}"),
        runs = beside(move || latchwork_harness::wait_until(LONG, || CLUSTER.psql(&running).unwrap() == "1")) => assert!(runs),
    }
}

/// Nothing ends it: but neither is the connection lost, nor does the lock outlive it.
#[tokio::test]
async fn a_statement_that_runs_on_in_a_pool_of_one_runs_to_its_end() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), table());
    let mut tx = begin(&pool, TxRequest::new(key).with_answer_within(Duration::from_millis(20)));
    let mut tx = loop {
        // In less time than this machine may need.
        match tx.await {
            Ok(tx) => break tx.unwrap(),
            Err(_) => {
                tx = begin(
                    &pool,
                    TxRequest::new(key).with_answer_within(Duration::from_millis(200)),
                )
            }
        }
    };
    stores(&mut tx, &table, 1).await;
    sleeps(&mut tx, 5).await;
    assert_eq!(seen(&CLUSTER, key), (1, 0));
    drop(tx);
    is_back(&pool).await;
    assert_eq!((seen(&CLUSTER, key), stored(&table)), ((0, 0), vec![0]));
}

/// COMMIT comes behind a closure that still runs, or not at all.
#[tokio::test]
async fn a_commit_waits_for_what_was_left_running_and_is_not_sent_after_its_limit() {
    for in_time in [true, false] {
        let (pool, key, table) = (pool(&CLUSTER.url(), 2), fresh_key(), table());
        let limit = if in_time { LONG } else { Duration::from_millis(500) };
        // Connected beforehand: the limit is for the rest.
        is_back(&pool).await;
        let asked = TxRequest::new(key).with_answer_within(limit);
        let mut tx = begin(&pool, asked).await.unwrap().unwrap();
        let (goes_on, waits) = mpsc::channel();
        let (began, begins) = mpsc::channel();
        let stored_in = table.clone();
        tokio::select! {
            biased;
            () = tx.run(move |conn| {
                began.send(()).unwrap();
                waits.recv_timeout(LONG).unwrap();
                drop(insert(conn, &stored_in, 1));
            }) => panic!("it has ended"),
            begun = beside(move || begins.recv_timeout(LONG)) => begun.unwrap(),
        }
        let commits = tokio::spawn(DieselTx::commit(tx));
        if in_time {
            goes_on.send(()).unwrap();
            commits.await.unwrap().unwrap();
        } else {
            let error = commits.await.unwrap().unwrap_err();
            assert!(matches!(error, TxError::Aborted(_)), "{error:?}");
            has(key, (0, 0)).await;
            goes_on.send(()).unwrap();
        }
        is_back(&pool).await;
        assert_eq!(stored(&table), if in_time { vec![0, 1] } else { vec![0] });
    }
}

#[tokio::test]
async fn what_others_have_left_open_is_not_committed() {
    let (pool, key, table) = (pool(&CLUSTER.url(), 1), fresh_key(), table());
    for last in ["SELECT 1", "SELECT 1/0"] {
        let mut connection = pool.get().unwrap();
        insert_in_a_transaction(&mut connection, &table);
        let _ = connection.batch_execute(last);
        drop(connection);
        let tx = begun(&pool, key).await;
        assert_eq!(seen(&CLUSTER, key), (1, 0));
        DieselTx::commit(tx).await.unwrap();
        is_back(&pool).await;
    }
    assert_eq!(stored(&table), [0]);
}

fn insert_in_a_transaction(connection: &mut diesel::PgConnection, table: &str) {
    let sql = format!("BEGIN; INSERT INTO {table} VALUES (5)");
    connection.batch_execute(&sql).unwrap();
}

/// Its own is gone by then, and the server's with it.
#[test]
fn a_runtime_that_ends_takes_open_transactions_along() {
    let (pool, key) = (pool(&CLUSTER.url(), 1), fresh_key());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let tx = runtime.block_on(begun(&pool, key));
    drop(runtime);
    drop(tx);
    becomes(&CLUSTER, key, (0, 0));
    is_clean(&mut pool.get().unwrap());
}

type Policy = TxLockPolicy<Request<()>, DieselTx>;

fn policy(pool: &PgPool, key: Key) -> Policy {
    let policy: Policy = TxLockPolicy::new(pool.clone(), key).unwrap();
    policy.answer_within(LONG)
}

async fn admitted(policy: &Policy) -> Result<OpenTx<DieselTx>, Rejection> {
    policy
        .attempt(&Request::new(()))?
        .expect("it needs a transaction")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_leaves_anywhere_leaves_nothing() {
    let pool = pool(&CLUSTER.url(), 1);
    for micros in (0..4_000).step_by(100) {
        let key = fresh_key();
        let policy = policy(&pool, key);
        drop(tokio::time::timeout(Duration::from_micros(micros), admitted(&policy)).await);
        has(key, (0, 0)).await;
        is_back(&pool).await;
    }
}

/// It stops waiting, and its connection is the next one's.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_has_left_stops_waiting() {
    let (pool, key) = (pool(&CLUSTER.url(), 1), fresh_key());
    let (held, ends) = mpsc::channel();
    let holder = spawn_blocking(move || while_held(key, || ends.recv().unwrap()));
    has(key, (1, 0)).await;
    // Longer than the test would last.
    let waiting = policy(&pool, key).wait(100 * LONG);
    tokio::select! {
        biased;
        admitted = admitted(&waiting) => panic!("{:?}", admitted.is_ok()),
        () = has(key, (1, 1)) => {}
    }
    has(key, (1, 0)).await;
    is_back(&pool).await;
    let busy = admitted(&policy(&pool, key)).await.unwrap_err();
    assert_eq!(busy.kind(), RejectionKind::LockBusy);
    held.send(()).unwrap();
    holder.await.unwrap();
    drop(admitted(&policy(&pool, key)).await.unwrap());
    has(key, (0, 0)).await;
}
