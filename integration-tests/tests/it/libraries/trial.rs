//! One library after the other before the same promise.

use std::{future::Future, pin::Pin, sync::Arc};

use latchwork_core::{
    Key,
    xact::{LockedError, XactLockError},
};
use latchwork_harness::{Cluster, PgBouncer, PoolMode};
use tokio::{
    spawn,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{CLUSTER, Connect, Failure, GLANCE, LIBRARIES, Library, Way, becomes, idle, in_time, seen};
use crate::onlooker::{Onlooker, SOON};

/// A library on trial, and what the server says of it.
pub(super) struct Trial {
    way: Way,
    connect: Connect,
    pub(super) server: Onlooker,
}

/// What every library promises.
pub(super) type Promise = fn(Arc<Trial>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where libraries are tried: a server, as they reach it and as it is seen from outside.
pub(super) struct Ground {
    way: Way,
    server: String,
}

impl Ground {
    pub(super) fn on(cluster: &Cluster) -> Self {
        let way = Way {
            url: cluster.url(),
            prepares: true,
        };
        let server = cluster.url();
        Self { way, server }
    }

    pub(super) fn direct() -> Self {
        Self::on(&CLUSTER)
    }

    /// Behind a pooler in transaction mode that keeps no prepared statements, with so few connections to the server.
    pub(super) fn pooled(connections: u32) -> (Self, PgBouncer) {
        let pooler = PgBouncer::builder(&CLUSTER, PoolMode::Transaction)
            .setting("default_pool_size", connections)
            .setting("ignore_startup_parameters", "extra_float_digits")
            .start()
            .unwrap();
        let way = Way {
            url: pooler.url(),
            prepares: false,
        };
        let server = CLUSTER.url();
        (Self { way, server }, pooler)
    }

    /// Tries all libraries at once, and fails with the names of those that break the promise.
    pub(super) async fn tries(&self, promise: Promise) {
        let trials = LIBRARIES.map(|(name, connect)| (name, self.begins(connect, promise)));
        assert_kept(trials).await;
    }

    /// Tries one library after the other.
    pub(super) async fn tries_in_turn(&self, promise: Promise) {
        for (name, connect) in LIBRARIES {
            assert_kept([(name, self.begins(connect, promise))]).await;
        }
    }

    fn begins(&self, connect: Connect, promise: Promise) -> JoinHandle<()> {
        let (way, server) = (self.way.clone(), self.server.clone());
        spawn(async move {
            let server = Onlooker::new(&server).await;
            promise(Arc::new(Trial { way, connect, server })).await;
        })
    }
}

async fn assert_kept(trials: impl IntoIterator<Item = (&'static str, JoinHandle<()>)>) {
    let mut broken = Vec::new();
    for (name, trial) in trials {
        // Its panic has told already what is wrong.
        if trial.await.is_err() {
            broken.push(name);
        }
    }
    assert!(broken.is_empty(), "broken by {broken:?}");
}

impl Trial {
    /// Tries a promise.
    pub(super) async fn all<R: Future<Output = ()>>(self: Arc<Self>, promise: impl FnOnce(Arc<Self>) -> R) {
        promise(self).await;
    }

    /// Tries a promise of futures, unless the library has none.
    pub(super) async fn of_futures<R: Future<Output = ()>>(self: Arc<Self>, promise: impl FnOnce(Arc<Self>) -> R) {
        if !self.pool(1).blocks() {
            promise(self).await;
        }
    }

    /// A pool of at most so many connections.
    pub(super) fn pool(&self, size: u32) -> Arc<dyn Library> {
        (self.connect)(&self.way, size)
    }

    /// A pool of one connection that goes by another way.
    pub(super) fn pool_of_one_at(&self, url: String) -> Arc<dyn Library> {
        let prepares = self.way.prepares;
        (self.connect)(&Way { url, prepares }, 1)
    }

    /// A table with one row, whose numbers are checked to be distinct at COMMIT; its name.
    pub(super) async fn counter(&self) -> String {
        let table = format!("counter_{}", fastrand::u64(..));
        let made = format!(
            "CREATE TABLE {table} (n int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO {table} VALUES (0)"
        );
        self.server.value(&made).await;
        table
    }

    /// Has the COMMIT of whoever changes a table run some statements of PL/pgSQL.
    pub(super) async fn commits_with(&self, table: &str, statements: &str) {
        let trigger = format!(
            "CREATE FUNCTION {table}_late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 {statements}; RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED \
                 FOR EACH ROW EXECUTE FUNCTION {table}_late()"
        );
        self.server.value(&trigger).await;
    }

    /// A table whose COMMIT waits for a key; its name.
    pub(super) async fn counter_that_commits_under(&self, key: Key) -> String {
        let table = self.counter().await;
        let waits = format!("PERFORM pg_advisory_xact_lock({})", key.sql_arguments());
        self.commits_with(&table, &waits).await;
        table
    }

    pub(super) async fn count(&self, table: &str) -> i64 {
        self.server.number(&format!("SELECT sum(n) FROM {table}")).await
    }

    pub(super) async fn seen(&self, key: Key) -> (u32, u32) {
        seen(&self.server, key).await
    }

    pub(super) async fn becomes(&self, key: Key, expected: (u32, u32)) {
        becomes(&self.server, key, expected).await;
    }

    /// A transaction of somebody else that holds the key until it is [ended](Holder::end).
    pub(super) async fn holder(&self, key: Key) -> Holder {
        let holder = Onlooker::new(&CLUSTER.url()).await;
        let take = format!("BEGIN; SELECT pg_advisory_xact_lock({})", key.sql_arguments());
        holder.value(&take).await;
        Holder(holder)
    }

    /// Calls a function of the server's, such as `pg_terminate_backend`, for the session that has the key, or waits for
    /// it.
    pub(super) async fn strikes(&self, function: &str, key: Key, granted: bool) {
        let sql = format!(
            "SELECT {function}(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted = {granted} \
             AND classid = {} AND objid = {} AND objsubid = {}",
            key.classid(),
            key.objid(),
            key.objsubid()
        );
        assert_eq!(self.server.value(&sql).await, "t");
    }

    /// Waits until a condition holds, as the server sees it.
    pub(super) async fn comes_true(&self, condition: &str) {
        let is_true = async {
            while !self.server.is(condition).await {
                sleep(GLANCE).await;
            }
        };
        let came = timeout(SOON, is_true).await;
        came.unwrap_or_else(|_| panic!("not true: {condition}"));
    }

    /// The next borrower of a pool of one has a connection that is in no transaction and holds no advisory lock, and the
    /// library knows of none either.
    pub(super) async fn is_clean(&self, pool_of_one: &dyn Library) {
        // In one message, so that it is a transaction of its own if none is open.
        let is_clean = "SELECT 1 / (now() = statement_timestamp() AND NOT EXISTS (SELECT FROM pg_locks \
             WHERE locktype = 'advisory' AND pid = pg_backend_pid()))::int";
        let alone = in_time(pool_of_one.alone(is_clean.to_owned())).await;
        alone.expect("a slot is stuck").unwrap();
        pool_of_one.plain(idle()).await.unwrap();
    }
}

/// See [`Trial::holder`].
#[must_use]
pub(super) struct Holder(Onlooker);

impl Holder {
    /// Does more in its transaction.
    pub(super) async fn does(&self, sql: &str) {
        self.0.value(sql).await;
    }

    pub(super) async fn end(self) {
        self.0.value("COMMIT").await;
    }

    /// Ends once a session waits for the key.
    pub(super) async fn ends_when_waited_for(self, trial: &Trial, key: Key) {
        trial.becomes(key, (1, 1)).await;
        self.end().await;
    }
}

/// What a transaction says that did not get its locks.
pub(super) fn refusal<T>(ended: Result<T, LockedError<Failure>>) -> XactLockError {
    match ended {
        Err(LockedError::Lock(error)) => error,
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it is committed"),
    }
}
