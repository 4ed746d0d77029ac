//! Transaction scope: locks that belong to a transaction of the caller.

mod ends;
mod several;
mod worlds;

use std::sync::LazyLock;
use std::time::Duration;

use latchwork_core::Key;
use latchwork_harness::{Cluster, wait_until};
use tokio_postgres::{Client, NoTls, Transaction};

static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::builder().setting("max_connections", 200).start().unwrap());

const LONG: Duration = Duration::from_secs(20);
/// More than the longest slice of a wait.
const SOON: Duration = Duration::from_secs(3);

async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn fresh_key() -> Key {
    Key::bigint(fastrand::i64(..))
}

/// How many sessions hold the key, and how many wait for it, as the server sees it.
fn seen(cluster: &Cluster, key: Key) -> (u32, u32) {
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

async fn becomes(cluster: &'static Cluster, key: Key, expected: (u32, u32)) {
    let reached = move || wait_until(LONG, || seen(cluster, key) == expected);
    assert!(
        tokio::task::spawn_blocking(reached).await.unwrap(),
        "{expected:?}, not {:?}",
        seen(cluster, key)
    );
}

async fn is_usable(transaction: &Transaction<'_>) -> bool {
    transaction.batch_execute("SELECT 1").await.is_ok()
}
