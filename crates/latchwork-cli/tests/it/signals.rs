//! Signals to `latchwork`, and the end of `latchwork` itself.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use latchwork_harness::{Cluster, Process, Signal, wait_until};

use crate::support::{PATIENCE, children_of, cluster, ends, exit_status, held, is_alive, latchwork, start, state};

#[test]
fn signals_reach_the_command() {
    for (signal, name, status) in [
        (Signal::TERM, "TERM", 11),
        (Signal::INT, "INT", 12),
        (Signal::HUP, "HUP", 13),
        (Signal::QUIT, "QUIT", 14),
        (Signal::USR1, "USR1", 15),
        (Signal::USR2, "USR2", 16),
        (Signal::WINCH, "WINCH", 17),
        (Signal::CONT, "CONT", 18),
    ] {
        let script = format!("trap 'exit {status}' {name}; echo ready; while :; do sleep 0.05; done");
        let mut process = start(cluster(), &["run", &format!("signal {name}")], &script);
        process.signal(signal);
        assert_eq!(exit_status(&mut process), status, "{name}");
    }
}

#[test]
fn a_signal_that_the_command_does_not_survive_is_its_status() {
    for (signal, status) in [
        (Signal::TERM, 143),
        (Signal::INT, 130),
        (Signal::HUP, 129),
        (Signal::USR1, 138),
    ] {
        let mut process = start(
            cluster(),
            &["run", &format!("deadly {status}")],
            "echo ready; exec sleep 60",
        );
        process.signal(signal);
        assert_eq!(exit_status(&mut process), status);
    }
}

#[test]
fn signals_reach_what_the_command_has_started() {
    let script = "sleep 61 & echo ready $!; wait";
    let mut process = Process::spawn(&mut latchwork(
        &cluster().url(),
        &["run", "group", "--", "/bin/sh", "-c", script],
    ))
    .unwrap();
    let inner = process.wait_for_line("ready ").unwrap();
    process.signal(Signal::TERM);
    assert_eq!(exit_status(&mut process), 143);
    assert!(ends(&inner));
}

#[test]
fn one_who_waits_for_the_lock_ends_with_a_signal() {
    let cluster = Cluster::start().unwrap();
    let _holder = start(&cluster, &["run", "taken"], "echo ready; exec sleep 60");
    let mut waiter = Process::spawn(&mut latchwork(&cluster.url(), &["run", "taken", "--", "true"])).unwrap();
    let waits = || cluster.psql("SELECT count(*) FROM pg_locks WHERE NOT granted").unwrap();
    assert!(wait_until(PATIENCE, || waits() == "1"));
    waiter.signal(Signal::TERM);
    assert_eq!(exit_status(&mut waiter), 143);
    assert!(wait_until(PATIENCE, || waits() == "0"));
}

#[test]
fn under_nohup_the_command_ignores_a_hangup_too() {
    let script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let program = env!("CARGO_BIN_EXE_latchwork");
    let mut command = Command::new("setsid");
    command
        .args(["nohup", program, "run", "nohup", "--", "/bin/sh", "-c", script])
        .env("DATABASE_URL", cluster().url())
        .stdin(Stdio::null());
    let mut process = Process::spawn(&mut command).unwrap();
    process.wait_for_line("ready").unwrap();
    process.signal(Signal::HUP);
    assert!(process.wait_within(Duration::from_millis(300)).unwrap().is_none());
    process.signal(Signal::TERM);
    assert_eq!(exit_status(&mut process), 0);
}

#[test]
fn what_stops_others_stops_neither_latchwork_nor_its_command() {
    let cluster = Cluster::start().unwrap();
    let mut process = start(
        &cluster,
        &["run", "ctrl-z"],
        "trap 'echo on' USR1; echo ready; while :; do sleep 0.05; done",
    );
    let own = process.id().to_string();
    for signal in [Signal::TSTP, Signal::TTIN, Signal::TTOU] {
        process.signal(signal);
        // In order: who answers to the second signal has seen to the first.
        process.signal(Signal::USR1);
        process.wait_for_line("on").unwrap();
        assert_ne!(state(&own), Some('T'));
        assert_eq!(held(&cluster), "1");
    }
    process.signal(Signal::TERM);
    assert_eq!(exit_status(&mut process), 143);
}

#[test]
fn who_is_told_to_end_while_the_lock_is_only_kept_has_the_status_of_the_command() {
    let cluster = Cluster::start().unwrap();
    let arguments = ["run", "--hold-at-least", "60s", "kept"];
    let mut process = start(&cluster, &arguments, "echo ready; exit 4");
    // The end of the command is known once nobody has its process id.
    assert!(wait_until(PATIENCE, || children_of(process.id()).len() <= 1));
    assert_eq!(held(&cluster), "1");
    process.signal(Signal::TERM);
    assert_eq!(exit_status(&mut process), 4);
}

#[test]
fn a_command_that_takes_too_long_is_stopped_and_then_killed() {
    let script = "trap '' TERM; echo ready; echo $$; while :; do sleep 0.05; done";
    let arguments = ["run", "--max-run", "200ms", "--grace", "200ms", "slow"];
    let mut process = start(cluster(), &arguments, script);
    let command = process.next_line().unwrap().unwrap();
    assert_eq!(exit_status(&mut process), 124);
    assert!(!is_alive(&command));
    let mut process = start(
        cluster(),
        &["run", "--max-run", "200ms", "slow"],
        "echo ready; exec sleep 60",
    );
    assert_eq!(exit_status(&mut process), 124);
    let output = latchwork(&cluster().url(), &["run", "--max-run", "30s", "slow", "--", "true"]).status();
    assert!(output.unwrap().success());
}

#[test]
fn kill_9_leaves_no_lock_and_no_orphan() {
    let cluster = Cluster::start().unwrap();
    // One that goes when it is told to, and one that does not.
    for (grace, trap) in [("60s", ""), ("200ms", "trap '' TERM;")] {
        let script = format!("{trap} sleep 62 & echo ready $$ $!; while :; do sleep 0.05; done");
        let mut command = latchwork(
            &cluster.url(),
            &["run", "--grace", grace, "orphan", "--", "/bin/sh", "-c", &script],
        );
        let mut process = Process::spawn(&mut command).unwrap();
        let pids = process.wait_for_line("ready ").unwrap();
        let (outer, inner) = pids.split_once(' ').unwrap();
        assert!(is_alive(outer) && is_alive(inner));
        process.signal(Signal::KILL);
        assert!(ends(outer) && ends(inner), "{pids}");
        assert!(wait_until(PATIENCE, || held(&cluster) == "0"));
    }
}

#[test]
fn what_ends_the_group_of_latchwork_does_not_leave_an_orphan() {
    let script = "echo ready $$; exec sleep 63";
    let mut command = latchwork(&cluster().url(), &["run", "group kill", "--", "/bin/sh", "-c", script]);
    // It has a session, and so a group, of its own.
    let mut process = Process::spawn(&mut command).unwrap();
    let child = process.wait_for_line("ready ").unwrap();
    let killed = Command::new("kill")
        .args(["-KILL", "--", &format!("-{}", process.id())])
        .status();
    assert!(killed.unwrap().success());
    assert!(ends(&child));
}

#[test]
fn no_process_is_left_after_a_good_end() {
    let script = "echo ready $PPID; exec true";
    let mut command = latchwork(&cluster().url(), &["run", "tidy", "--", "/bin/sh", "-c", script]);
    let mut process = Process::spawn(&mut command).unwrap();
    let latchwork = process.wait_for_line("ready ").unwrap();
    assert_eq!(exit_status(&mut process), 0);
    assert!(ends(&latchwork));
    let watchdogs = || {
        let list = Command::new("ps").args(["-eo", "ppid=,args="]).output().unwrap();
        String::from_utf8_lossy(&list.stdout)
            .lines()
            .filter(|line| line.contains("__watchdog") && line.trim_start().starts_with(&latchwork))
            .count()
    };
    assert!(wait_until(PATIENCE, || watchdogs() == 0));
}
