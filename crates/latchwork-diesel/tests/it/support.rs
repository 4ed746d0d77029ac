//! Connections, tables, and how the server sees them.

use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use diesel::connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager};
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::{Connection as _, PgConnection, QueryableByName, RunQueryDsl as _, sql_query, sql_types};
use latchwork_diesel::{Key, XactOptions};
use latchwork_harness::{Cluster, wait_until};

pub(crate) static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::builder().setting("max_connections", 200).start().unwrap());

pub(crate) type PgPool = Pool<ConnectionManager<PgConnection>>;

pub(crate) const MOMENT: Duration = Duration::from_millis(30);
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn patient() -> XactOptions {
    XactOptions::within(LONG)
}

pub(crate) fn connect() -> PgConnection {
    PgConnection::establish(&CLUSTER.url()).unwrap()
}

pub(crate) fn pool(url: &str, size: u32) -> PgPool {
    let manager = ConnectionManager::new(url);
    Pool::builder().max_size(size).build(manager).unwrap()
}

pub(crate) fn fresh_key() -> Key {
    Key::bigint(fastrand::i64(..))
}

/// A table of numbers that nobody else uses, with a row that has 0.
pub(crate) fn table() -> String {
    let name = format!("numbers_{}", fastrand::u64(..));
    let sql = format!("CREATE TABLE {name} (number int NOT NULL); INSERT INTO {name} VALUES (0)");
    CLUSTER.psql(&sql).unwrap();
    name
}

/// All numbers of a table, in order.
pub(crate) fn stored(table: &str) -> Vec<i32> {
    let numbers = CLUSTER.psql(&format!("SELECT number FROM {table} ORDER BY number"));
    numbers.unwrap().lines().map(|number| number.parse().unwrap()).collect()
}

pub(crate) fn insert(conn: &mut impl OnPg, table: &str, number: i32) -> diesel::QueryResult<usize> {
    sql_query(format!("INSERT INTO {table} VALUES ({number})")).execute(conn)
}

/// How many sessions hold the key, and how many wait for it, as the server sees it.
pub(crate) fn seen(cluster: &Cluster, key: Key) -> (u32, u32) {
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

pub(crate) fn becomes(cluster: &Cluster, key: Key, expected: (u32, u32)) {
    assert!(
        wait_until(LONG, || seen(cluster, key) == expected),
        "{expected:?}, not {:?}",
        seen(cluster, key)
    );
}

/// Holds the key in a transaction of another session while `during` runs.
pub(crate) fn while_held<T>(key: Key, during: impl FnOnce() -> T) -> T {
    let mut other = connect();
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({})", key.sql_arguments());
    other.batch_execute(&lock).unwrap();
    let came = during();
    other.batch_execute("COMMIT").unwrap();
    came
}

/// Holds the key in another session until somebody waits for it, and then `after` has run.
pub(crate) fn until_waited_for(cluster: &'static Cluster, key: Key, after: impl FnOnce() + Send + 'static) -> Holding {
    let mut other = PgConnection::establish(&cluster.url()).unwrap();
    let lock = format!("BEGIN; SELECT pg_advisory_xact_lock({})", key.sql_arguments());
    other.batch_execute(&lock).unwrap();
    Holding(thread::spawn(move || {
        becomes(cluster, key, (1, 1));
        after();
        other.batch_execute("COMMIT").unwrap();
    }))
}

/// The other session of [`until_waited_for`].
#[must_use]
pub(crate) struct Holding(thread::JoinHandle<()>);

impl Holding {
    pub(crate) fn ended(self) {
        self.0.join().unwrap();
    }
}

/// Any connection of diesel's to PostgreSQL.
pub(crate) trait OnPg:
    diesel::Connection<Backend = diesel::pg::Pg> + diesel::connection::LoadConnection
{
}

impl<C: diesel::Connection<Backend = diesel::pg::Pg> + diesel::connection::LoadConnection> OnPg for C {}

pub(crate) fn pid(conn: &mut impl OnPg) -> i32 {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = sql_types::Integer)]
        pid: i32,
    }
    let row = sql_query("SELECT pg_backend_pid() AS pid").get_result::<Row>(conn);
    row.unwrap().pid
}

pub(crate) fn shown(conn: &mut impl OnPg, setting: &str) -> String {
    #[derive(QueryableByName)]
    struct Row {
        #[diesel(sql_type = sql_types::Text)]
        value: String,
    }
    let row = sql_query(format!("SELECT current_setting('{setting}') AS value")).get_result::<Row>(conn);
    row.unwrap().value
}

/// Ends a session of the server.
pub(crate) fn kill(cluster: &Cluster, pid: i32) {
    cluster.psql(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
    let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid}");
    assert!(wait_until(LONG, || cluster.psql(&gone).unwrap() == "0"));
}

/// Asserts that diesel and the server agree that no transaction is open, and that no lock is left.
#[track_caller]
pub(crate) fn is_clean(conn: &mut PgConnection) {
    let status = <AnsiTransactionManager as TransactionManager<PgConnection>>::transaction_manager_status_mut(conn);
    assert_eq!(status.transaction_depth().unwrap(), None);
    let pid = pid(conn);
    let state = format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}");
    assert_eq!(CLUSTER.psql(&state).unwrap(), "idle");
    let locks = format!("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = {pid}");
    assert_eq!(CLUSTER.psql(&locks).unwrap(), "0");
    conn.transaction(|_| Ok::<_, diesel::result::Error>(())).unwrap();
}
