//! Workers in processes that are killed and stopped.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use latchwork_core::{Key, key::Namespace};
use latchwork_harness::{Cluster, Process, Signal};

use crate::onlooker::{Onlooker, SOON, eventually};

const SHARDS: u32 = 7;
/// Sessions are trusted for 0.75 s, and kept for 2.25 s while they are silent.
const TIMING: [&str; 2] = ["250", "500"];
const KEPT: Duration = Duration::from_millis(2_250);

struct World {
    // Ends before the server does.
    workers: Vec<(String, Process)>,
    cluster: Cluster,
    onlooker: Onlooker,
    started: u32,
}

impl World {
    /// Three workers that have shared all shards.
    async fn new() -> Self {
        let cluster = Cluster::start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        let table = "CREATE TABLE beliefs (worker text, gain int, shard int, at bigint)";
        onlooker.value(table).await;
        let mut world = Self {
            workers: Vec::new(),
            cluster,
            onlooker,
            started: 0,
        };
        for _ in 0..3 {
            world.start();
        }
        world.settled().await;
        let at_work = "SELECT count(DISTINCT worker) FROM beliefs";
        eventually("all work", async || world.onlooker.number(at_work).await == 3).await;
        world
    }

    fn start(&mut self) {
        self.started += 1;
        let name = format!("worker-{}", self.started);
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        command
            .args([&self.cluster.url(), &name, &SHARDS.to_string()])
            .args(TIMING);
        self.workers.push((name, Process::spawn(&mut command).unwrap()));
    }

    /// Of the server, which shards a worker has.
    async fn shards_of(&self, worker: &str) -> Vec<u32> {
        let pool = Namespace::unnamed().key("mail").unwrap().derive("shards", 0);
        let keys: Vec<Key> = (0..SHARDS).map(|shard| pool.derive("slot", shard)).collect();
        let rows = format!(
            "SELECT coalesce(string_agg(classid || '/' || objid, ' '), '') FROM pg_locks JOIN pg_stat_activity USING (pid) \
             WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND application_name LIKE 'latchwork:{worker}#%'"
        );
        let rows = self.onlooker.value(&rows).await;
        let held = |key: &Key| {
            rows.split(' ')
                .any(|row| row == format!("{}/{}", key.classid(), key.objid()))
        };
        (0..SHARDS).filter(|shard| held(&keys[*shard as usize])).collect()
    }

    /// Waits until the workers share all shards fairly.
    async fn settled(&self) {
        eventually("they share all shards", async || {
            let mut counts = Vec::new();
            for (worker, _) in &self.workers {
                counts.push(self.shards_of(worker).await.len());
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            counts.iter().sum::<usize>() == SHARDS as usize && most - least <= 1
        })
        .await;
    }

    /// That no two have believed in a shard at a time, by the clock that all processes here share: not even who was stopped
    /// while another has gained it.
    async fn assert_one_holder_at_a_time(&self) {
        let sql = "WITH tenures AS (SELECT shard, worker, gain, min(at) AS first, max(at) AS last FROM beliefs \
             GROUP BY shard, worker, gain) SELECT count(*) FROM tenures AS one JOIN tenures AS other USING (shard) \
             WHERE (one.worker, one.gain) < (other.worker, other.gain) \
             AND one.first <= other.last AND other.first <= one.last";
        assert_eq!(self.onlooker.number(sql).await, 0, "two have believed in a shard");
    }

    /// Waits until somebody believes in each of these shards, who is not this worker.
    async fn are_others(&self, shards: &[u32], worker: &str) {
        let shards: Vec<String> = shards.iter().map(u32::to_string).collect();
        let sql = format!(
            "SELECT count(DISTINCT shard) FROM beliefs WHERE shard IN ({}) AND worker <> '{worker}' \
             AND at > (SELECT max(at) FROM beliefs WHERE worker = '{worker}')",
            shards.join(", ")
        );
        eventually("others work on its shards", async || {
            self.onlooker.number(&sql).await == shards.len() as i64
        })
        .await;
    }
}

#[tokio::test]
async fn the_shards_of_a_worker_that_is_killed_are_taken_over_at_once() {
    let mut world = World::new().await;
    let (name, mut killed) = world.workers.remove(0);
    let had = world.shards_of(&name).await;
    let begun = Instant::now();
    killed.signal(Signal::KILL);
    world.settled().await;
    let after = begun.elapsed();
    assert!(after < KEPT, "it was not waited for: {after:?}");
    world.are_others(&had, &name).await;
    killed.wait().unwrap();
    world.assert_one_holder_at_a_time().await;
}

#[tokio::test]
async fn a_worker_that_is_told_to_end_leaves_its_shards_to_the_others() {
    let mut world = World::new().await;
    let (name, mut leaves) = world.workers.remove(0);
    let had = world.shards_of(&name).await;
    leaves.signal(Signal::TERM);
    leaves.wait_for_line("left").unwrap();
    assert!(leaves.wait().unwrap().success());
    assert_eq!(world.shards_of(&name).await, [0; 0]);
    world.settled().await;
    world.are_others(&had, &name).await;
    world.assert_one_holder_at_a_time().await;
}

#[tokio::test]
async fn a_worker_that_is_stopped_loses_its_shards_and_finds_out_when_it_goes_on() {
    let mut world = World::new().await;
    let (name, stopped) = world.workers.remove(0);
    let had = world.shards_of(&name).await;
    let begun = Instant::now();
    stopped.signal(Signal::STOP);
    // The server lets go of it, once it has been silent for long enough.
    world.settled().await;
    assert!(begun.elapsed() < KEPT + SOON, "{:?}", begun.elapsed());
    world.are_others(&had, &name).await;
    stopped.signal(Signal::CONT);
    world.workers.push((name, stopped));
    world.settled().await;
    world.assert_one_holder_at_a_time().await;
}

#[tokio::test]
async fn workers_that_are_killed_stopped_and_started_at_random_never_share_a_shard() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut world = World::new().await;
    let mut stopped: Vec<(String, Process)> = Vec::new();
    for _ in 0..ROUNDS {
        let runs = world.workers.len();
        match random.u8(0..8) {
            0..2 if runs > 1 => drop(world.workers.remove(random.usize(0..runs))),
            2 if runs > 1 => {
                let (_, mut leaves) = world.workers.remove(random.usize(0..runs));
                leaves.signal(Signal::TERM);
                leaves.wait_for_line("left").unwrap();
            }
            3..6 if runs > 1 => {
                let worker = world.workers.remove(random.usize(0..runs));
                worker.1.signal(Signal::STOP);
                stopped.push(worker);
            }
            6 if !stopped.is_empty() => {
                let worker = stopped.remove(0);
                worker.1.signal(Signal::CONT);
                world.workers.push(worker);
            }
            _ if runs + stopped.len() < 5 => world.start(),
            _ => {}
        }
        // Some stops are longer than a session is kept, and some are not.
        tokio::time::sleep(Duration::from_millis(random.u64(0..1_200))).await;
    }
    for worker in stopped {
        worker.1.signal(Signal::CONT);
        world.workers.push(worker);
    }
    world.settled().await;
    world.assert_one_holder_at_a_time().await;
}

const ROUNDS: usize = 15;
