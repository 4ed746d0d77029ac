//! Candidates in processes that are killed and stopped.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use latchwork_harness::{Cluster, Process, Signal, StopMode};

use crate::onlooker::{Onlooker, SOON, connect, eventually, quick};

/// Sessions are trusted for 0.75 s, and kept for 2.25 s while they are silent.
const TIMING: [&str; 2] = ["250", "500"];
const KEPT: Duration = Duration::from_millis(2_250);

fn candidate(cluster: &Cluster) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_candidate"));
    Process::spawn(command.args([&cluster.url(), "a"]).args(TIMING)).unwrap()
}

struct World {
    cluster: Cluster,
    onlooker: Onlooker,
    leader: Process,
    follower: Process,
}

impl World {
    /// A leader, and a follower that queues behind it.
    async fn new() -> Self {
        let cluster = Cluster::start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        let mut leader = candidate(&cluster);
        leader.wait_for_line("works ").unwrap();
        let follower = candidate(&cluster);
        eventually("it queues", async || onlooker.queued().await == 1).await;
        Self {
            cluster,
            onlooker,
            leader,
            follower,
        }
    }
}

#[tokio::test]
async fn a_leader_that_is_killed_is_replaced_at_once() {
    let mut world = World::new().await;
    let killed = Instant::now();
    world.leader.signal(Signal::KILL);
    world.follower.wait_for_line("works ").unwrap();
    let after = killed.elapsed();
    assert!(after < KEPT, "it was not waited for: {after:?}");
    world.leader.wait().unwrap();
}

#[tokio::test]
async fn a_leader_that_is_told_to_end_resigns_before_it_does() {
    let mut world = World::new().await;
    world.leader.signal(Signal::TERM);
    let term = world.leader.wait_for_line("is resigned ").unwrap();
    // The lock is kept until its work has, which nobody has dropped.
    world.leader.wait_for_line("returned").unwrap();
    world.leader.wait_for_line("ended").unwrap();
    assert!(world.leader.wait().unwrap().success());
    let next = world.follower.wait_for_line("works ").unwrap();
    assert!(next > term, "{next} after {term}");
}

#[tokio::test]
async fn a_leader_that_is_stopped_is_replaced_and_finds_out_when_it_goes_on() {
    let mut world = World::new().await;
    world.leader.signal(Signal::STOP);
    let stopped = Instant::now();
    let next = world.follower.wait_for_line("works ").unwrap();
    assert!(stopped.elapsed() < KEPT + SOON, "{:?}", stopped.elapsed());
    world.leader.signal(Signal::CONT);
    let lost = world.leader.wait_for_line("is lost ").unwrap();
    assert!(next > lost, "{next} after {lost}");
    // It queues behind the one that leads.
    eventually("it queues", async || world.onlooker.queued().await == 1).await;
    world.follower.signal(Signal::KILL);
    let again = world.leader.wait_for_line("works ").unwrap();
    assert!(again > next, "{again} after {next}");
    world.follower.wait().unwrap();
}

#[tokio::test]
async fn after_a_restart_of_the_server_one_leads_under_a_greater_term() {
    let mut world = World::new().await;
    let observes = connect(&world.cluster.url(), quick()).await;
    let observes = observes.locks().leader("a").ineligible().campaign().unwrap();
    let last = observes.leader().await.unwrap().unwrap().term;
    world.cluster.restart(StopMode::Fast).unwrap();
    world.leader.wait_for_line("is lost ").unwrap();
    eventually("one leads again", async || {
        let leader = observes.leader().await;
        leader.is_ok_and(|leader| leader.is_some_and(|leader| leader.term > last))
    })
    .await;
}
