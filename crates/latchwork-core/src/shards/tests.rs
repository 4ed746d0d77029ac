//! Workers that come and go, on a server in memory.

mod silence;
mod slow;

use std::{collections::HashMap, time::Duration};

use tokio::time::{sleep, timeout};

use super::{Shard, ShardEvent, Shards, driver::fair_share};
use crate::{memory::MemoryServer, testing::Seed};

const SHARDS: u32 = 10;
/// Some rebalance intervals.
const SETTLED: Duration = Duration::from_secs(20);

/// A worker that gives up at once what it is to give up.
struct Worker {
    shards: Shards,
    has: HashMap<u32, Shard>,
    /// Which of them were gained, as the events tell.
    told: Vec<u32>,
}

impl Worker {
    fn join(server: &MemoryServer) -> Self {
        Self {
            shards: server.locks().shards("a", SHARDS).unwrap().join(),
            has: HashMap::new(),
            told: Vec::new(),
        }
    }

    /// Takes in what has come.
    async fn look(&mut self) {
        while let Ok(Some(event)) = timeout(Duration::ZERO, self.shards.next()).await {
            match event {
                ShardEvent::Gained(shard) => {
                    assert!(!self.told.contains(&shard.index()), "gained twice");
                    self.told.push(shard.index());
                    assert!(self.has.insert(shard.index(), shard).is_none());
                }
                ShardEvent::Lost(index) => {
                    assert!(self.told.contains(&index), "lost what it had not");
                    self.told.retain(|told| *told != index);
                    let shard = self.has.remove(&index);
                    assert!(shard.is_none_or(|shard| shard.is_revoked()));
                }
            }
        }
    }
}

/// That no shard is held twice; returns how many each worker has.
fn counts(workers: &[Worker]) -> Vec<usize> {
    let mut all: Vec<u32> = workers.iter().flat_map(|worker| worker.has.keys().copied()).collect();
    all.sort_unstable();
    let held = all.len();
    all.dedup();
    assert_eq!(all.len(), held, "a shard is held twice");
    workers.iter().map(|worker| worker.has.len()).collect()
}

async fn pass(workers: &mut [Worker], time: Duration) {
    let step = Duration::from_millis(100);
    for _ in 0..time.as_millis() / step.as_millis() {
        sleep(step).await;
        for worker in &mut *workers {
            worker.look().await;
        }
        counts(workers);
    }
}

fn assert_fair(workers: &[Worker]) {
    let counts = counts(workers);
    assert_eq!(counts.iter().sum::<usize>(), SHARDS as usize, "{counts:?}");
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 1, "{counts:?}");
}

#[test]
fn shares_add_up_whatever_the_numbers_of_workers_are() {
    for shards in 0..20 {
        for workers in 1..25_i32 {
            let numbers: Vec<i32> = (0..workers).map(|_| fastrand::i32(..)).collect();
            let shares = (0..workers as usize).map(|own| {
                let mut others = numbers.clone();
                let own = others.remove(own);
                fair_share(shards, own, &others)
            });
            assert_eq!(shares.sum::<usize>(), shards);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_worker_has_all_and_two_share_them() {
    let server = MemoryServer::new();
    let mut workers = vec![Worker::join(&server)];
    pass(&mut workers, SETTLED).await;
    assert_fair(&workers);
    workers.push(Worker::join(&server));
    pass(&mut workers, SETTLED).await;
    assert_fair(&workers);
    let leaves = workers.pop().unwrap();
    drop(leaves);
    pass(&mut workers, SETTLED).await;
    assert_fair(&workers);
}

#[tokio::test(start_paused = true)]
async fn workers_that_come_and_go_at_random_share_fairly_once_it_is_calm() {
    for seed in Seed::row(20, 3) {
        let mut seed = Seed::new(seed);
        let server = MemoryServer::new();
        let mut workers = Vec::new();
        for _ in 0..60 {
            match seed.rng.u32(0..10) {
                0..4 => workers.push(Worker::join(&server)),
                4..6 if !workers.is_empty() => {
                    let Worker { shards, has, .. } = workers.swap_remove(seed.rng.usize(0..workers.len()));
                    drop(has);
                    shards.leave().await;
                }
                6 if !workers.is_empty() => drop(workers.swap_remove(seed.rng.usize(0..workers.len()))),
                7 => server.end_sessions(),
                _ => {}
            }
            let pause = Duration::from_millis(seed.rng.u64(0..3_000));
            pass(&mut workers, pause).await;
        }
        workers.push(Worker::join(&server));
        pass(&mut workers, 3 * SETTLED).await;
        assert_fair(&workers);
        seed.note(|| "calm".to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn a_shard_whose_value_is_kept_is_nobody_elses() {
    let server = MemoryServer::new();
    let mut workers = vec![Worker::join(&server)];
    pass(&mut workers, SETTLED).await;
    let (index, kept) = workers[0].has.drain().next().unwrap();
    workers.push(Worker::join(&server));
    pass(&mut workers, SETTLED).await;
    assert!(workers.iter().all(|worker| !worker.has.contains_key(&index)));
    assert!(kept.is_held());
    drop(kept);
    pass(&mut workers, SETTLED).await;
    assert_fair(&workers);
}

#[tokio::test(start_paused = true)]
async fn closing_the_locks_revokes_all_and_waits_for_them() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let mut shards = locks.shards("a", 2).unwrap().join();
    let Some(ShardEvent::Gained(shard)) = shards.next().await else {
        panic!("nothing is gained")
    };
    let Some(ShardEvent::Gained(other)) = shards.next().await else {
        panic!("one is gained")
    };
    drop(other);
    let closing = tokio::spawn(async move { locks.close().await });
    shard.revoked().await;
    assert!(!closing.is_finished());
    assert!(shard.is_held());
    drop(shard);
    closing.await.unwrap();
    while shards.next().await.is_some() {}
    assert_eq!(server.held(), 0);
}
