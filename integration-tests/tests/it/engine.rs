//! What only the PostgreSQL engine shows: sessions, batches, losses.

use std::time::Duration;

use latchwork_core::{Key, Locks};
use latchwork_harness::Cluster;
use latchwork_postgres::{Config, Postgres, PostgresOptions};

async fn connect(cluster: &Cluster) -> Postgres {
    let config: Config = cluster.url().parse().unwrap();
    Postgres::connect(config, PostgresOptions::default()).await.unwrap()
}

fn held(cluster: &Cluster) -> String {
    cluster.psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").unwrap().trim().to_owned()
}

async fn exclude(one: &Locks, other: &Locks) {
    let guard = one.try_acquire("job").await.unwrap().expect("nobody holds it");
    assert!(other.try_acquire("job").await.unwrap().is_none());
    let waiting = tokio::spawn(other.acquire("job").within(Duration::from_secs(5)));
    tokio::time::sleep(Duration::from_millis(50)).await;
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn two_processes_exclude_each_other() {
    let cluster = Cluster::start().unwrap();
    let (one, other) = (connect(&cluster).await, connect(&cluster).await);
    exclude(&one.locks(), &other.locks()).await;
    exclude(&other.locks(), &one.locks()).await;
    let pair = one.locks().try_acquire(Key::pair(1, 2)).shared().await.unwrap().unwrap();
    assert!(other.locks().try_acquire(Key::pair(1, 2)).await.unwrap().is_none());
    drop(pair);
    let slots = one.locks().slots("pool", 3).unwrap();
    let others = other.locks().slots("pool", 3).unwrap();
    let mut permits = Vec::new();
    for _ in 0..2 {
        permits.push(slots.try_acquire().await.unwrap().unwrap());
    }
    permits.push(others.try_acquire().await.unwrap().unwrap());
    assert!(slots.try_acquire().await.unwrap().is_none());
    assert!(others.try_acquire().await.unwrap().is_none());
    println!("{permits:?}");
    drop(permits);
    drop(slots);
    drop(others);
    one.locks().close().await;
    other.locks().close().await;
    assert_eq!(held(&cluster), "0");
    println!("{}", cluster.log());
}
