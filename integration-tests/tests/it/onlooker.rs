//! What a test sees of a server from outside: a session of its own, and the server's log.

use std::error::Error;
use std::time::{Duration, Instant};

use latchwork_core::Key;
use latchwork_harness::{Cluster, Installation};
use latchwork_postgres::{Config, Postgres, PostgresOptions, Timing};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// How long anything may take that is to happen soon, on a machine that does much else.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Time limits that let a test see a loss in moments: sessions are trusted for 0.75 s and kept for 2.25 s.
pub(crate) fn quick() -> PostgresOptions {
    PostgresOptions::default().with_timing(Timing::new(Duration::from_millis(250), Duration::from_millis(500)))
}

/// Starts the engine as one process would.
pub(crate) async fn connect(url: &str, options: PostgresOptions) -> Postgres {
    Postgres::connect(url.parse::<Config>().unwrap(), options)
        .await
        .unwrap()
}

/// A cluster for each major that is installed.
pub(crate) fn majors() -> Vec<Installation> {
    let all = Installation::all();
    assert!(!all.is_empty(), "install PostgreSQL, or run `cargo xtask setup`");
    all
}

/// Looks at a condition until it holds.
#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    within(SOON, what, condition)
}

/// Looks at a condition until it holds, and fails after a limit.
#[track_caller]
pub(crate) fn within(
    limit: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> bool,
) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let begun = Instant::now();
        while !condition().await {
            assert!(begun.elapsed() < limit, "not within {limit:?}: {what} ({caller})");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The whole chain of an error, as people see it and as `Debug` prints it.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = format!("{error} {error:?}");
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(" / {error} {error:?}"));
        source = error.source();
    }
    text
}

/// Lines of the log that somebody would be woken by.
pub(crate) fn loud(cluster: &Cluster) -> Vec<String> {
    let log = cluster.log();
    let is_loud = |line: &&str| {
        ["WARNING:", "ERROR:", "FATAL:", "PANIC:"]
            .iter()
            .any(|word| line.contains(word))
    };
    log.lines().filter(is_loud).map(str::to_owned).collect()
}

#[track_caller]
pub(crate) fn assert_quiet(cluster: &Cluster) {
    assert_eq!(loud(cluster), Vec::<String>::new(), "{}", cluster.log());
}

/// A session of the test's own.
pub(crate) struct Onlooker(pub(crate) Client);

impl Onlooker {
    pub(crate) async fn new(url: &str) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        Self(client)
    }

    /// Runs simple queries, and returns the first column of the last row.
    pub(crate) async fn value(&self, sql: &str) -> String {
        let messages = self.0.simple_query(sql).await.unwrap();
        let rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        });
        rows.last().unwrap_or_default()
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.value(sql).await.parse().unwrap()
    }

    pub(crate) async fn is(&self, condition: &str) -> bool {
        self.value(&format!("SELECT ({condition})")).await == "t"
    }

    pub(crate) async fn pid(&self) -> i32 {
        self.value("SELECT pg_backend_pid()").await.parse().unwrap()
    }

    /// How many advisory locks others hold.
    pub(crate) async fn held(&self) -> i64 {
        self.locks("granted").await
    }

    /// Whether others hold a key.
    pub(crate) async fn sees_held(&self, key: Key) -> bool {
        let (classid, objid, objsubid) = (key.classid(), key.objid(), key.objsubid());
        let which = format!("granted AND objsubid = {objsubid} AND classid = {classid} AND objid = {objid}");
        self.locks(&which).await > 0
    }

    /// How many sessions queue for an advisory lock.
    pub(crate) async fn queued(&self) -> i64 {
        self.locks("NOT granted").await
    }

    async fn locks(&self, which: &str) -> i64 {
        let sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()";
        self.number(&format!("{sql} AND {which}")).await
    }

    /// The sessions of engines that `condition` holds for, first come first.
    pub(crate) async fn sessions(&self, condition: &str) -> Vec<i32> {
        let sql = "SELECT coalesce(string_agg(pid::text, ',' ORDER BY backend_start), '') FROM pg_stat_activity \
             WHERE application_name LIKE 'latchwork:%'";
        let pids = self.value(&format!("{sql} AND ({condition})")).await;
        pids.split(',')
            .filter(|pid| !pid.is_empty())
            .map(|pid| pid.parse().unwrap())
            .collect()
    }

    /// The one session that holds a lock.
    pub(crate) async fn holder(&self) -> i32 {
        let sql =
            "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()";
        self.value(sql).await.parse().unwrap()
    }

    /// The one session that queues for a lock, once there is one.
    pub(crate) async fn waiter(&self) -> i32 {
        eventually("somebody queues", async || self.queued().await == 1).await;
        let sql = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        self.value(sql).await.parse().unwrap()
    }

    pub(crate) async fn terminate(&self, pid: i32) {
        assert!(
            self.is(&format!("pg_terminate_backend({pid})")).await,
            "no session {pid}"
        );
    }
}
