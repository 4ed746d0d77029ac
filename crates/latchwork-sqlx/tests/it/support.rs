use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::LazyLock,
    task::Poll,
    time::Duration,
};

use latchwork_harness::{Cluster, wait_until};
use latchwork_sqlx::{Key, XactOptions};
use sqlx::{Connection as _, PgConnection, PgPool, PgTransaction, postgres::PgPoolOptions};
use tokio::{task::spawn_blocking, time::timeout};

/// A server, all of a test's own where it looks at more than its keys.
pub(crate) static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::builder().setting("max_connections", 200).start().unwrap());

pub(crate) const MOMENT: Duration = Duration::from_millis(30);
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn patient() -> XactOptions {
    XactOptions::within(LONG)
}

/// A pool of at most so many connections.
pub(crate) fn pool(url: &str, size: u32) -> PgPool {
    PgPoolOptions::new().max_connections(size).connect_lazy(url).unwrap()
}

pub(crate) async fn connection() -> PgConnection {
    PgConnection::connect(&CLUSTER.url()).await.unwrap()
}

pub(crate) fn fresh_key() -> Key {
    Key::bigint(fastrand::i64(..))
}

/// A table with one row, and its name.
pub(crate) fn counter() -> String {
    let table = format!("counter_{}", fastrand::u64(..));
    let made = format!("CREATE TABLE {table} (n int); INSERT INTO {table} VALUES (0)");
    CLUSTER.psql(&made).unwrap();
    table
}

pub(crate) fn count(table: &str) -> String {
    CLUSTER.psql(&format!("SELECT sum(n) FROM {table}")).unwrap()
}

/// How many sessions hold the key, and how many wait for it, as the server sees it.
pub(crate) fn seen(key: Key) -> (u32, u32) {
    let counts = CLUSTER.psql(&format!(
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

pub(crate) async fn becomes(key: Key, expected: (u32, u32)) {
    let reached = spawn_blocking(move || wait_until(LONG, || seen(key) == expected));
    assert!(reached.await.unwrap(), "{expected:?}, not {:?}", seen(key));
}

/// Whether another session can have the key now.
pub(crate) fn is_free(key: Key) -> bool {
    let asked = CLUSTER.psql(&format!("SELECT pg_try_advisory_xact_lock({})", key.sql_arguments()));
    asked.unwrap() == "t"
}

/// A transaction of somebody else that holds the key.
pub(crate) async fn holder(connection: &mut PgConnection, key: Key) -> PgTransaction<'_> {
    let mut transaction = connection.begin().await.unwrap();
    let take = format!("SELECT pg_advisory_xact_lock({})", key.sql_arguments());
    run(&mut transaction, take).await.unwrap();
    transaction
}

pub(crate) async fn run(connection: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
        .execute(connection)
        .await
        .map(drop)
}

/// Without a named statement, so that it passes PgBouncer.
pub(crate) async fn value(connection: &mut PgConnection, sql: String) -> sqlx::Result<i32> {
    let query = sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).persistent(false);
    query.fetch_one(connection).await
}

pub(crate) async fn pid(connection: &mut PgConnection) -> i32 {
    value(connection, "SELECT pg_backend_pid()".to_owned()).await.unwrap()
}

pub(crate) fn terminate(pid: i32) {
    CLUSTER.psql(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
}

/// Reads, gives others time to read the same, and writes.
pub(crate) async fn count_one(connection: &mut PgConnection, table: &str) -> sqlx::Result<()> {
    let n = value(&mut *connection, format!("SELECT n FROM {table}")).await?;
    tokio::task::yield_now().await;
    run(connection, format!("UPDATE {table} SET n = {}", n + 1)).await
}

/// The next borrower of a pool of one has a connection that is in no transaction and holds no advisory lock.
pub(crate) async fn is_clean(pool: &PgPool) {
    assert_eq!(pool.options().get_max_connections(), 1);
    let mut connection = timeout(LONG, pool.acquire()).await.expect("a slot is stuck").unwrap();
    assert_eq!(left(&mut connection).await, 0);
}

/// How much of a transaction is left on a connection.
pub(crate) async fn left(connection: &mut PgConnection) -> i32 {
    let sql = "SELECT (now() <> statement_timestamp())::int4 + (SELECT count(*)::int4 FROM pg_locks \
         WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS left";
    let row = sqlx::Executor::fetch_one(connection, sqlx::raw_sql(sql)).await.unwrap();
    sqlx::Row::get(&row, 0)
}

/// Polls a future so many times and drops it, before anything else happens; what it has ended with by then.
pub(crate) async fn polled<T>(times: usize, future: impl Future<Output = T>) -> Option<T> {
    dropped(times, Drops::AtOnce, future).await
}

/// When a future is dropped after its last poll.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drops {
    /// What it has sent has no answer yet.
    AtOnce,
    /// There is an answer, which it has not seen.
    WhenWoken,
}

pub(crate) async fn dropped<T>(times: usize, drops: Drops, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 && matches!(drops, Drops::AtOnce) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
