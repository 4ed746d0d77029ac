//! A cluster, pools of SeaORM, and what the server says itself.

use std::{
    future::{Future, poll_fn},
    panic::Location,
    task::Poll,
    time::{Duration, Instant},
};

use latchwork_harness::Cluster;
use latchwork_sea_orm::Key;
use sea_orm::{
    DatabaseConnection,
    sqlx::{AssertSqlSafe, PgPool, Row as _, ValueRef as _, postgres::PgPoolOptions, raw_sql},
};

/// How long anything may take that is to happen soon, on a machine that does much else.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// A limit that runs out.
pub(crate) const MOMENT: Duration = Duration::from_millis(30);

/// A cluster of the test's own, and a session of it beside those that are tested.
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    onlooker: PgPool,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on(Cluster::start().unwrap()).await
    }

    pub(crate) async fn on(cluster: Cluster) -> Self {
        let onlooker = pool(&cluster.url(), 1).await;
        Self { cluster, onlooker }
    }

    /// What a service has, with so many connections.
    pub(crate) async fn database(&self, connections: u32) -> DatabaseConnection {
        pool(&self.cluster.url(), connections).await.into()
    }

    /// Runs simple queries, and returns the first column of the last row.
    pub(crate) async fn value(&self, sql: &str) -> String {
        value(&self.onlooker, sql).await
    }

    /// How many sessions hold a key, and how many wait for it.
    pub(crate) async fn seen(&self, key: Key) -> (u32, u32) {
        let which = format!(
            "classid = {} AND objid = {} AND objsubid = {}",
            key.classid(),
            key.objid(),
            key.objsubid()
        );
        self.locks(&which).await
    }

    /// How many locks are held, and how many are waited for.
    pub(crate) async fn all_seen(&self) -> (u32, u32) {
        self.locks("true").await
    }

    async fn locks(&self, which: &str) -> (u32, u32) {
        let counts = "count(*) FILTER (WHERE granted), count(*) FILTER (WHERE NOT granted)";
        let sql = format!("SELECT concat_ws('|', {counts}) FROM pg_locks WHERE locktype = 'advisory' AND {which}");
        let counted = self.value(&sql).await;
        let (granted, waiting) = counted.split_once('|').unwrap();
        (granted.parse().unwrap(), waiting.parse().unwrap())
    }

    /// Waits until the server sees a key held and waited for by so many.
    #[track_caller]
    pub(crate) fn becomes(&self, key: Key, expected: (u32, u32)) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            let begun = Instant::now();
            while self.seen(key).await != expected {
                look_again(begun, "the key is held and waited for as expected", caller).await;
            }
        }
    }

    /// Waits until no lock is held or waited for, and no session but the onlooker's is in a transaction.
    #[track_caller]
    pub(crate) fn comes_to_rest(&self) -> impl Future<Output = ()> {
        eventually("nothing is locked, and no transaction open", async || {
            self.is_at_rest().await
        })
    }

    pub(crate) async fn is_at_rest(&self) -> bool {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL AND pid <> pg_backend_pid() \
             AND (state LIKE 'idle in transaction%' OR state = 'active')";
        self.all_seen().await == (0, 0) && self.value(open).await == "0"
    }

    /// Ends the session that holds a key, or waits for it.
    #[cfg(feature = "http")]
    pub(crate) async fn terminate(&self, key: Key, granted: bool) {
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = {} AND objid = {} \
             AND granted = {granted}",
            key.classid(),
            key.objid()
        );
        assert_eq!(self.value(&sql).await, "t");
    }

    /// Lines of the server's log that somebody would be woken by.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.cluster.log();
        let words = ["WARNING:", "ERROR:", "FATAL:", "PANIC:"];
        let loud = log.lines().filter(|line| words.iter().any(|word| line.contains(word)));
        loud.map(str::to_owned).collect()
    }
}

pub(crate) async fn pool(url: &str, connections: u32) -> PgPool {
    let options = PgPoolOptions::new().max_connections(connections);
    options.acquire_timeout(SOON).connect(url).await.unwrap()
}

/// Runs simple queries on a pool, and returns the first column of the last row.
pub(crate) async fn value(pool: &PgPool, sql: &str) -> String {
    let rows = raw_sql(AssertSqlSafe(sql.to_owned())).fetch_all(pool).await.unwrap();
    let row = rows.last().expect("there is a row");
    let value = row.try_get_raw(0).unwrap();
    if value.is_null() {
        return String::new();
    }
    value.as_str().unwrap().to_owned()
}

/// Takes every connection of a pool, and looks whether it is in order.
pub(crate) async fn assert_clean(database: &DatabaseConnection) {
    let pool = database.get_postgres_connection_pool();
    let mut taken = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        let mut connection = tokio::time::timeout(SOON, pool.acquire()).await.unwrap().unwrap();
        let alone = "SELECT transaction_timestamp() = statement_timestamp()";
        let row = raw_sql(alone).fetch_one(&mut *connection).await.unwrap();
        assert_eq!(
            row.try_get_raw(0).unwrap().as_str().unwrap(),
            "t",
            "it is in a transaction"
        );
        taken.push(connection);
    }
}

pub(crate) fn fresh_key() -> Key {
    Key::bigint(fastrand::i64(..))
}

/// Looks at a condition until it holds.
#[track_caller]
pub(crate) fn eventually(
    what: impl Into<String>,
    mut condition: impl AsyncFnMut() -> bool,
) -> impl Future<Output = ()> {
    let (caller, what) = (Location::caller(), what.into());
    async move {
        let begun = Instant::now();
        while !condition().await {
            look_again(begun, &what, caller).await;
        }
    }
}

async fn look_again(begun: Instant, what: &str, caller: &Location<'_>) {
    assert!(begun.elapsed() < SOON, "not within {SOON:?}: {what} ({caller})");
    tokio::time::sleep(Duration::from_millis(2)).await;
}

/// When a future is dropped that was polled often enough.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drop {
    /// As soon as it has returned.
    AtOnce,
    /// When it is woken for the next time.
    WhenWoken,
}

/// What comes of a future that is polled so many times at most, each time but the first since it was woken.
pub(crate) async fn polled<F: Future>(future: F, times: usize, drop: Drop) -> Option<F::Output> {
    let (mut future, mut left) = (Box::pin(future), times);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 && matches!(drop, Drop::AtOnce) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
