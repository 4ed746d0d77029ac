use std::{
    future::{Future, poll_fn},
    ops::DerefMut,
    pin::pin,
    sync::LazyLock,
    task::Poll,
    time::Duration,
};

use diesel::{QueryResult, QueryableByName, sql_types::Integer};
use diesel_async::{
    AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _, SimpleAsyncConnection as _,
    pooled_connection::{AsyncDieselConnectionManager, bb8, deadpool},
};
use latchwork_diesel_async::{Key, XactOptions};
use latchwork_harness::{Cluster, wait_until};
use tokio::{task::spawn_blocking, time::timeout};

/// A server, all of a test's own where it looks at more than its keys.
pub(crate) static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::builder().setting("max_connections", 200).start().unwrap());

pub(crate) const MOMENT: Duration = Duration::from_millis(30);
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) type Deadpool = deadpool::Pool<AsyncPgConnection>;
pub(crate) type Bb8 = bb8::Pool<AsyncPgConnection>;

pub(crate) fn patient() -> XactOptions {
    XactOptions::within(LONG)
}

/// What the tests want of a pool beside its locks.
pub(crate) trait TestPool: Clone + Send + Sync + 'static {
    /// A pool of at most so many connections.
    fn of(url: &str, size: u32) -> Self;
    async fn connection(&self) -> impl DerefMut<Target = AsyncPgConnection>;
    fn size(&self) -> usize;
    fn idle(&self) -> usize;
}

impl TestPool for Deadpool {
    fn of(url: &str, size: u32) -> Self {
        let manager = AsyncDieselConnectionManager::new(url);
        Self::builder(manager).max_size(size as usize).build().unwrap()
    }

    async fn connection(&self) -> impl DerefMut<Target = AsyncPgConnection> {
        timeout(LONG, self.get()).await.expect("a slot is stuck").unwrap()
    }

    fn size(&self) -> usize {
        self.status().size
    }

    fn idle(&self) -> usize {
        self.status().available
    }
}

impl TestPool for Bb8 {
    fn of(url: &str, size: u32) -> Self {
        let manager = AsyncDieselConnectionManager::new(url);
        Self::builder().max_size(size).build_unchecked(manager)
    }

    async fn connection(&self) -> impl DerefMut<Target = AsyncPgConnection> {
        timeout(LONG, self.get_owned()).await.expect("a slot is stuck").unwrap()
    }

    fn size(&self) -> usize {
        self.state().connections as usize
    }

    fn idle(&self) -> usize {
        self.state().idle_connections as usize
    }
}

pub(crate) fn pool(url: &str, size: u32) -> Deadpool {
    Deadpool::of(url, size)
}

pub(crate) async fn connection() -> AsyncPgConnection {
    AsyncPgConnection::establish(&CLUSTER.url()).await.unwrap()
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

/// Waits until psql answers a question with this.
pub(crate) async fn answers(question: String, expected: &'static str) {
    let asked = question.clone();
    let reached = spawn_blocking(move || wait_until(LONG, || CLUSTER.psql(&asked).unwrap() == expected));
    let now = CLUSTER.psql(&question);
    assert!(reached.await.unwrap(), "{question}: {expected}, not {now:?}");
}

/// Whether another session can have the key now.
pub(crate) fn is_free(key: Key) -> bool {
    let asked = CLUSTER.psql(&format!("SELECT pg_try_advisory_xact_lock({})", key.sql_arguments()));
    asked.unwrap() == "t"
}

/// A transaction of somebody else that holds the key, until it is [ended](end) or dropped.
pub(crate) async fn holder(key: Key) -> AsyncPgConnection {
    let mut holder = connection().await;
    let take = format!("BEGIN; SELECT pg_advisory_xact_lock({})", key.sql_arguments());
    holder.batch_execute(&take).await.unwrap();
    holder
}

pub(crate) async fn end(mut holder: AsyncPgConnection) {
    holder.batch_execute("COMMIT").await.unwrap();
}

pub(crate) async fn run(connection: &mut AsyncPgConnection, sql: String) -> QueryResult<()> {
    connection.batch_execute(&sql).await
}

#[derive(QueryableByName)]
struct Value {
    #[diesel(sql_type = Integer)]
    value: i32,
}

pub(crate) async fn value(connection: &mut AsyncPgConnection, sql: &str) -> QueryResult<i32> {
    let row: Value = diesel::sql_query(format!("SELECT ({sql}) AS value"))
        .get_result(connection)
        .await?;
    Ok(row.value)
}

pub(crate) async fn pid(connection: &mut AsyncPgConnection) -> i32 {
    value(connection, "SELECT pg_backend_pid()").await.unwrap()
}

pub(crate) fn terminate(pid: i32) {
    CLUSTER.psql(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
}

/// Reads, gives others time to read the same, and writes.
pub(crate) async fn count_one(connection: &mut AsyncPgConnection, table: &str) -> QueryResult<()> {
    let n = value(&mut *connection, &format!("SELECT n FROM {table}")).await?;
    tokio::task::yield_now().await;
    run(connection, format!("UPDATE {table} SET n = {}", n + 1)).await
}

/// The next borrower of a pool of one has a connection that is in no transaction and holds no advisory lock.
pub(crate) async fn is_clean(pool: &impl TestPool) {
    let mut connection = pool.connection().await;
    assert_eq!(left(&mut connection).await, 0);
    // diesel knows of none either.
    connection.transaction(async |_| QueryResult::Ok(())).await.unwrap();
    assert_eq!(left(&mut connection).await, 0);
}

/// Whether anything of a transaction is left on a connection: 0 if it is in none, and holds no lock.
pub(crate) async fn left(connection: &mut AsyncPgConnection) -> i32 {
    // In one message, whose rows cannot be read: of a transaction that is open, or aborted, it makes an error.
    let is_clean = "SELECT 1 / (now() = statement_timestamp() AND NOT EXISTS (SELECT FROM pg_locks \
         WHERE locktype = 'advisory' AND pid = pg_backend_pid()))::int4";
    connection.batch_execute(is_clean).await.is_err().into()
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
