//! Shards on PostgreSQL: workers with connections of their own, whose sessions end.

mod processes;

use std::{collections::HashMap, time::Duration};

use latchwork_core::{
    AcquireError,
    shards::{Shard, ShardEvent, Shards},
};
use latchwork_harness::Cluster;
use latchwork_postgres::Postgres;
use tokio::time::timeout;

use crate::onlooker::{Onlooker, assert_quiet, chain, connect, eventually, quick};

const SHARDS: u32 = 7;

struct Worker {
    postgres: Postgres,
    shards: Shards,
    has: HashMap<u32, Shard>,
}

impl Worker {
    async fn join(cluster: &Cluster) -> Self {
        let postgres = connect(&cluster.url(), quick()).await;
        let shards = postgres.locks().shards("mail", SHARDS).unwrap();
        Self {
            shards: shards.with_rebalance_interval(Duration::from_millis(100)).join(),
            postgres,
            has: HashMap::new(),
        }
    }

    async fn look(&mut self) {
        while let Ok(Some(event)) = timeout(Duration::ZERO, self.shards.next()).await {
            match event {
                ShardEvent::Gained(shard) => drop(self.has.insert(shard.index(), shard)),
                ShardEvent::Lost(index) => drop(self.has.remove(&index)),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Waits until the workers have so many each, in some order; at no time do two have the same.
async fn settle(workers: &mut [Worker], mut expected: Vec<usize>) {
    expected.sort_unstable();
    eventually(&format!("they have {expected:?}"), async || {
        for worker in &mut *workers {
            worker.look().await;
        }
        let mut all: Vec<u32> = workers
            .iter()
            .flat_map(|worker| worker.has.values())
            .filter(|shard| shard.is_held())
            .map(Shard::index)
            .collect();
        let held = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), held, "a shard is held twice");
        let mut counts: Vec<_> = workers.iter().map(|worker| worker.has.len()).collect();
        counts.sort_unstable();
        counts == expected
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_share_fairly_while_they_come_go_and_lose_their_sessions() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let mut workers = vec![Worker::join(&cluster).await];
    settle(&mut workers, vec![7]).await;
    workers.push(Worker::join(&cluster).await);
    settle(&mut workers, vec![3, 4]).await;
    workers.push(Worker::join(&cluster).await);
    settle(&mut workers, vec![2, 2, 3]).await;
    let leaves = workers.remove(0);
    drop(leaves.has);
    leaves.shards.leave().await;
    leaves.postgres.locks().close().await;
    settle(&mut workers, vec![3, 4]).await;
    assert_quiet(&cluster);
    let sessions = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks \
         WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()) AS holders";
    assert!(onlooker.number(sessions).await >= 2);
    for worker in &workers {
        for shard in worker.has.values() {
            timeout(crate::onlooker::SOON, shard.revoked()).await.unwrap();
        }
    }
    settle(&mut workers, vec![3, 4]).await;
    for Worker { postgres, shards, has } in workers {
        drop(has);
        shards.leave().await;
        postgres.locks().close().await;
    }
    eventually("nothing is held", async || onlooker.held().await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_read_keeps_nothing_from_one_that_joins() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let busy = Worker::join(&cluster).await;
    // Its marker is one more.
    eventually("it has them all", async || onlooker.held().await > i64::from(SHARDS)).await;
    let joins = Worker::join(&cluster).await;
    let mut workers = vec![joins];
    eventually("it has its share", async || {
        workers[0].look().await;
        workers[0].has.len() >= 3
    })
    .await;
    workers.push(busy);
    settle(&mut workers, vec![3, 4]).await;
}

#[tokio::test]
async fn a_worker_whose_server_has_no_room_says_so() {
    let cluster = Cluster::start().unwrap();
    let postgres = connect(&cluster.url(), quick().with_max_locks(1)).await;
    let locks = postgres.locks();
    let guard = locks.try_acquire("something else").await.unwrap().unwrap();
    let shards = locks.shards("mail", SHARDS).unwrap();
    let mut shards = shards.with_rebalance_interval(Duration::from_millis(100)).join();
    eventually("it says so", async || shards.failure().is_some()).await;
    let failure = shards.failure().unwrap();
    assert!(
        matches!(&*failure, AcquireError::CapacityExceeded { .. }) && chain(&*failure).contains("max_locks"),
        "{}",
        chain(&*failure)
    );
    assert!(
        timeout(Duration::ZERO, shards.next()).await.is_err(),
        "nothing is gained"
    );
    drop(guard);
    shards.leave().await;
}
