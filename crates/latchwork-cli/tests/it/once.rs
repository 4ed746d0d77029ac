//! `run` with a tick, and with a time for which the lock is held at least.

use std::time::{Duration, Instant};

use latchwork_harness::{Cluster, StopMode, wait_until};

use crate::support::{PATIENCE, exit_status, held, latchwork, start};

fn status_of(cluster: &Cluster, arguments: &[&str]) -> Option<i32> {
    latchwork(&cluster.url(), arguments).status().unwrap().code()
}

fn with_tables() -> Cluster {
    let cluster = Cluster::start().unwrap();
    assert_eq!(status_of(&cluster, &["schema", "install"]), Some(0));
    cluster
}

#[test]
fn a_tick_runs_once_and_who_comes_second_is_told_75() {
    let cluster = with_tables();
    // A tick in a year that is long past: it is the same for all who come.
    let yearly = [
        "run",
        "--tick",
        "0 0 1 1 *",
        "--time-zone",
        "Europe/Berlin",
        "yearly",
        "--",
    ];
    let run = |code: &str| status_of(&cluster, &[&yearly[..], &["/bin/sh", "-c", code]].concat());
    assert_eq!(run("exit 3"), Some(3));
    assert_eq!(run("exit 3"), Some(75));
    let row = "SELECT count(*) FROM latchwork.ticks WHERE name = 'yearly' AND ended_at IS NOT NULL";
    assert_eq!(cluster.psql(row).unwrap(), "1");
}

#[test]
fn now_is_the_minute_and_the_next_minute_is_another_tick() {
    let cluster = with_tables();
    let now = ["run", "--tick", "now", "minutely", "--", "true"];
    assert_eq!(status_of(&cluster, &now), Some(0));
    let back = "UPDATE latchwork.ticks SET tick = tick - interval '1 minute'";
    cluster.psql(back).unwrap();
    assert_eq!(status_of(&cluster, &now), Some(0));
}

#[test]
fn without_its_table_a_tick_is_no_skip() {
    let cluster = Cluster::start().unwrap();
    let now = ["run", "--tick", "now", "minutely", "--", "true"];
    assert_eq!(status_of(&cluster, &now), Some(69));
    assert_eq!(
        status_of(&cluster, &["run", "--tick", "at noon", "x", "--", "true"]),
        Some(64)
    );
}

#[test]
fn a_schedule_that_cannot_be_read_is_told_of_without_a_database() {
    for schedule in [["--tick", "at noon"], ["--tick=0 3 * * *", "--time-zone=Mars/Olympus"]] {
        let mut command = latchwork("host=/nowhere", &["run"]);
        let status = command.args(schedule).args(["x", "--", "true"]).status().unwrap();
        assert_eq!(status.code(), Some(64), "{schedule:?}");
    }
}

#[test]
fn the_lock_is_held_for_as_long_as_was_said_although_the_command_has_ended() {
    let cluster = Cluster::start().unwrap();
    let begun = Instant::now();
    let mut process = start(
        &cluster,
        &["run", "--hold-at-least", "2s", "brief"],
        "echo ready; exit 4",
    );
    let other = ["run", "--hold-at-least", "2s", "brief", "--", "true"];
    assert_eq!(status_of(&cluster, &other), Some(75));
    assert_eq!(exit_status(&mut process), 4);
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(wait_until(PATIENCE, || held(&cluster) == "0"));
}

#[test]
fn a_command_that_runs_too_long_or_loses_its_lock_is_ended() {
    let cluster = with_tables();
    let long = [
        "run",
        "--tick",
        "now",
        "--max-run",
        "500ms",
        "long",
        "--",
        "sleep",
        "60",
    ];
    assert_eq!(status_of(&cluster, &long), Some(143));
    let mut process = start(
        &cluster,
        &["run", "--hold-at-least", "60s", "lost"],
        "echo ready; exec sleep 60",
    );
    cluster.stop(StopMode::Immediate).unwrap();
    assert_eq!(exit_status(&mut process), 74);
}
