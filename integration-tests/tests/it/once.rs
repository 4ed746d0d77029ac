//! Work that is done once on PostgreSQL: one tick, one run, whoever comes and whenever.

mod ledger;
mod scheduler;
mod ticks;
mod transactions;

use std::time::{Duration, SystemTime};

use latchwork_harness::{Cluster, Installation};
use latchwork_postgres::schema::install;

use crate::onlooker::Onlooker;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A cluster with the tables, and a table of runs in which no tick can be twice.
async fn installed() -> (Cluster, Onlooker) {
    installed_on(Cluster::start().unwrap()).await
}

async fn installed_on_major(installation: Installation) -> (Cluster, Onlooker) {
    println!("PostgreSQL {}", installation.version());
    installed_on(Cluster::builder().installation(installation).start().unwrap()).await
}

async fn installed_on(cluster: Cluster) -> (Cluster, Onlooker) {
    let onlooker = Onlooker::new(&cluster.url()).await;
    install(&onlooker.0).await.unwrap();
    onlooker
        .0
        .batch_execute("CREATE TABLE runs (tick timestamptz PRIMARY KEY)")
        .await
        .unwrap();
    (cluster, onlooker)
}

/// Stores the tick that is being run. Only whoever holds the lock may ask.
const STORE_RUN: &str = "INSERT INTO runs SELECT tick FROM latchwork.ticks WHERE name = 'job'";

/// The full second that has just begun, so that it is a whole number for everybody.
fn now() -> SystemTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}
