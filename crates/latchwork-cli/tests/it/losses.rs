//! Locks that are lost while their command runs.

use std::process::Command;

use latchwork_harness::{Cluster, Process, StopMode, wait_until};

use crate::support::{END_HOLDERS, PATIENCE, ends, exit_status, held, is_alive, latchwork, start};

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
fn a_command_whose_latchwork_is_killed_as_it_starts_does_not_run() {
    // Its parent is still there, as a process that is killed is for a moment, and the pipe that it would report through is not.
    let starts = "$0 __command /proc/$$/fd/99 '' /bin/echo ran; echo status $?";
    let output = Command::new("/bin/sh")
        .args(["-c", starts, env!("CARGO_BIN_EXE_latchwork")])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "status 74\n");
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

#[test]
fn whether_anybody_reads_what_it_says_makes_no_difference() {
    let cluster = Cluster::start().unwrap();
    let unread = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        writer
    };
    for (arguments, status) in [
        (&["run", "--max-run", "200ms", "unread"][..], 124),
        (&["run", "unread"], 74),
        (&["run", "--hold-at-least", "1ms", "unread"], 74),
        (&["elect", "unread"], 143),
    ] {
        let mut arguments = arguments.to_vec();
        arguments.extend(["--", "/bin/sh", "-c", "echo ready $$; exec sleep 60"]);
        let mut command = latchwork(&cluster.url(), &arguments);
        let mut process = Process::spawn(command.stderr(unread())).unwrap();
        let child = process.wait_for_line("ready ").unwrap();
        if status == 74 || arguments[0] == "elect" {
            cluster.psql(END_HOLDERS).unwrap();
        }
        if arguments[0] == "elect" {
            process.wait_for_line("ready ").unwrap();
            process.signal(latchwork_harness::Signal::TERM);
        }
        assert_eq!(exit_status(&mut process), status, "{arguments:?}");
        assert!(!is_alive(&child), "{arguments:?}");
    }
    let mut command = latchwork(&cluster.url(), &["run", "--no-such", "x"]);
    assert_eq!(command.stderr(unread()).status().unwrap().code(), Some(64));
    let mut command = latchwork(&cluster.url(), &["ls"]);
    assert_eq!(command.stdout(unread()).status().unwrap().code(), Some(0));
}

#[test]
fn a_loss_while_the_command_is_stopped_for_another_reason_is_told_when_it_has_ended() {
    let cluster = Cluster::start().unwrap();
    for arguments in [&["run"][..], &["run", "--hold-at-least", "1ms"]] {
        let mut arguments = arguments.to_vec();
        arguments.extend(["--max-run", "200ms", "slow"]);
        let script = "trap 'echo told; sleep 1; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
        let mut process = start(&cluster, &arguments, script);
        process.wait_for_line("told").unwrap();
        cluster.psql(END_HOLDERS).unwrap();
        // Its output has ended, so the command has, before `latchwork`.
        assert_eq!(process.next_line().unwrap(), None);
        assert_eq!(exit_status(&mut process), 74, "{arguments:?}");
    }
}
