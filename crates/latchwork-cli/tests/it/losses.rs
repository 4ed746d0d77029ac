//! Locks that are lost while their command runs.

use latchwork_harness::{Cluster, Process, StopMode, wait_until};

use crate::support::{PATIENCE, ends, exit_status, held, is_alive, latchwork, start};

const END_HOLDERS: &str = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks \
     WHERE locktype = 'advisory' AND granted) AS holders";

#[test]
fn a_session_that_is_ended_ends_the_command_with_74() {
    let cluster = Cluster::start().unwrap();
    for arguments in [
        &["run", "lost"][..],
        &["run", "--shared", "lost"],
        &["run", "--slots", "3", "lost"],
        &["run", "--fenced", "lost"],
    ] {
        let script = "trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
        let mut process = start(&cluster, arguments, script);
        cluster.psql(END_HOLDERS).unwrap();
        process.wait_for_line("told").unwrap();
        assert_eq!(exit_status(&mut process), 74, "{arguments:?}");
        assert!(wait_until(PATIENCE, || held(&cluster) == "0"));
    }
}

#[test]
fn a_server_that_stops_ends_the_command_with_74() {
    for mode in [StopMode::Fast, StopMode::Immediate] {
        let cluster = Cluster::start().unwrap();
        let mut process = start(&cluster, &["run", "lost"], "echo ready; exec sleep 60");
        cluster.stop(mode).unwrap();
        assert_eq!(exit_status(&mut process), 74);
    }
}

#[test]
fn a_command_that_does_not_listen_is_killed_with_all_it_has_started() {
    let cluster = Cluster::start().unwrap();
    let script = "trap '' TERM; sleep 64 & echo ready $$ $!; while :; do sleep 0.05; done";
    let arguments = ["run", "--grace", "300ms", "stubborn", "--", "/bin/sh", "-c", script];
    let mut process = Process::spawn(&mut latchwork(&cluster.url(), &arguments)).unwrap();
    let pids = process.wait_for_line("ready ").unwrap();
    let (outer, inner) = pids.split_once(' ').unwrap();
    assert!(is_alive(outer) && is_alive(inner));
    cluster.psql(END_HOLDERS).unwrap();
    assert_eq!(exit_status(&mut process), 74);
    assert!(ends(outer) && ends(inner), "{pids}");
}

#[test]
fn what_the_command_has_started_is_given_its_time_too() {
    let cluster = Cluster::start().unwrap();
    // The outer one ends at once, the inner one has something to put away.
    let inner = "trap 'sleep 0.5; echo tidy; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let script = format!("trap 'exit 0' TERM; /bin/sh -c \"{inner}\" & wait");
    let mut process = start(&cluster, &["run", "two"], &script);
    cluster.psql(END_HOLDERS).unwrap();
    process.wait_for_line("tidy").unwrap();
    assert_eq!(exit_status(&mut process), 74);
}

#[test]
fn a_lock_that_is_lost_behind_the_back_of_a_short_command_is_told() {
    let cluster = Cluster::start().unwrap();
    // The command itself ends the session under it, and then itself.
    let psql = latchwork_harness::find_program("psql").unwrap();
    let script = format!(
        "echo \"{END_HOLDERS}\" | {} -qAt -d \"$1\" >/dev/null; exit 0",
        psql.display()
    );
    let url = cluster.url();
    let arguments = ["run", "behind", "--", "/bin/sh", "-c", &script, "sh", &url];
    let output = latchwork(&url, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(74), "{output:?}");
}
