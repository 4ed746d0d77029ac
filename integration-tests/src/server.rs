//! The PostgreSQL behind the worlds: one cluster for all tests of a process, and a database for each test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use latchwork_core::Key;
use latchwork_harness::{Cluster, PgBouncer, PoolMode};
use tokio_postgres::{Client, NoTls};

use crate::View;

/// The cluster of all tests that neither stop nor restart it.
static CLUSTER: LazyLock<Arc<Cluster>> = LazyLock::new(|| Arc::new(start()));

static POOLER: LazyLock<PgBouncer> = LazyLock::new(|| {
    PgBouncer::builder(&CLUSTER, PoolMode::Session)
        .setting("default_pool_size", 100)
        .setting("max_client_conn", 1_000)
        .start()
        .unwrap()
});

/// The words that tell of trouble in the server's log.
const TROUBLE: [&str; 4] = ["WARNING:", "ERROR:", "FATAL:", "PANIC:"];

/// Starts a cluster with room for many locks, whose log names the database of each line.
pub(crate) fn start() -> Cluster {
    Cluster::builder()
        .setting("max_connections", 300)
        .setting("max_locks_per_transaction", 256)
        .setting("log_line_prefix", "[%d] ")
        .start()
        .unwrap()
}

/// A database of one test. Locks of other databases are in other spaces, so the server's view of this one is all the
/// test's own.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) cluster: Arc<Cluster>,
    name: String,
    oid: u32,
    observer: Mutex<Arc<Client>>,
    allowed: Mutex<Vec<(&'static str, usize)>>,
}

impl Database {
    /// Makes one on the shared cluster.
    pub(crate) async fn shared() -> Self {
        Self::on(Arc::clone(&CLUSTER)).await
    }

    /// Makes one on a given cluster.
    pub(crate) async fn on(cluster: Arc<Cluster>) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("t{}", MADE.fetch_add(1, Ordering::Relaxed));
        let observer = connect(&cluster.url()).await;
        observer
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .unwrap();
        let row = observer
            .query_one("SELECT oid FROM pg_database WHERE datname = $1", &[&name])
            .await;
        let oid = row.unwrap().get(0);
        Self {
            cluster,
            name,
            oid,
            observer: Mutex::new(Arc::new(observer)),
            allowed: Mutex::default(),
        }
    }

    pub(crate) fn url(&self) -> String {
        self.cluster.url_for("postgres", &self.name)
    }

    /// The URL through the shared cluster's pooler.
    pub(crate) fn pooled_url(&self) -> String {
        POOLER.url_for(&self.name)
    }

    /// What `pg_locks` shows for this database.
    pub(crate) async fn view(&self) -> View {
        let observer = self.observer().await;
        let view = "SELECT count(*) FILTER (WHERE granted), count(*) FILTER (WHERE NOT granted) FROM pg_locks \
             WHERE locktype = 'advisory' AND database = $1";
        let row = observer.query_one(view, &[&self.oid]).await.unwrap();
        let count = |column| usize::try_from(row.get::<_, i64>(column)).unwrap();
        View {
            held: count(0),
            waiting: count(1),
        }
    }

    /// Terminates the sessions that hold a key.
    pub(crate) async fn terminate_holders_of(&self, key: Key) {
        self.allow("terminating connection due to administrator command", usize::MAX);
        let observer = self.observer().await;
        let terminate = "SELECT pg_terminate_backend(pid) FROM pg_locks \
             WHERE granted AND locktype = 'advisory' AND database = $1 AND classid = $2 AND objid = $3 AND objsubid = $4";
        let (classid, objid, objsubid) = (key.classid(), key.objid(), key.objsubid().cast_signed());
        let terminated = observer
            .query(terminate, &[&self.oid, &classid, &objid, &objsubid])
            .await;
        assert!(!terminated.unwrap().is_empty(), "nobody holds {key}");
    }

    pub(crate) fn allow(&self, words: &'static str, most: usize) {
        self.allowed.lock().unwrap().push((words, most));
    }

    /// The lines that tell of trouble, without those that were allowed.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut allowed = self.allowed.lock().unwrap().clone();
        let mut lines = self.lines();
        lines.retain(|line| {
            let forgiven = allowed
                .iter_mut()
                .find(|(words, most)| *most > 0 && line.contains(words));
            if let Some((_, most)) = forgiven {
                *most -= 1;
                return false;
            }
            TROUBLE.iter().any(|word| line.contains(word))
        });
        lines
    }

    /// Has sessions that begin from now on log each statement.
    pub(crate) async fn log_statements(&self) {
        let set = format!("ALTER DATABASE {} SET log_statement = 'all'", self.name);
        self.observer().await.batch_execute(&set).await.unwrap();
    }

    /// How many of the statements in the log have these words.
    pub(crate) fn logged(&self, words: &str) -> usize {
        let lines = self.lines().into_iter();
        lines
            .filter(|line| line.contains("LOG:  ") && line.contains(words))
            .count()
    }

    /// A connection that is none of those that are tested.
    async fn observer(&self) -> Arc<Client> {
        let last = Arc::clone(&self.observer.lock().unwrap());
        if !last.is_closed() {
            return last;
        }
        let next = Arc::new(connect(&self.cluster.url()).await);
        *self.observer.lock().unwrap() = Arc::clone(&next);
        next
    }

    fn lines(&self) -> Vec<String> {
        let prefix = format!("[{}] ", self.name);
        let log = self.cluster.log();
        log.lines()
            .filter(|line| line.starts_with(&prefix))
            .map(str::to_owned)
            .collect()
    }
}

/// Connects as anybody would.
pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    // Its end is seen by the client.
    tokio::spawn(connection);
    client
}
