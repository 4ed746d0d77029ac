//! A `latchwork` that stands still, and whom nobody asks.

use std::{fs, time::Duration};

use latchwork_harness::{Cluster, Process, Signal};
use rustix::process::{Pid, kill_process};

use crate::support::{END_HOLDERS, ends, exit_status, held, is_alive, latchwork, start};

#[test]
fn the_command_ends_before_the_server_lets_the_next_one_in() {
    let cluster = Cluster::start().unwrap();
    // One that goes when it is told to, and one that has to be made.
    for trap in ["", "trap '' TERM;"] {
        for (verb, grace) in [("run", "1s"), ("elect", "1s")] {
            let script = format!("{trap} echo ready $$; while :; do sleep 0.05; done");
            let arguments = [verb, "--grace", grace, "still", "--", "/bin/sh", "-c", &script];
            let mut process = Process::spawn(&mut latchwork(&cluster.url(), &arguments)).unwrap();
            let child = process.wait_for_line("ready ").unwrap();
            let holds = held(&cluster);
            process.signal(Signal::STOP);
            assert!(ends(&child), "{verb} {trap}");
            assert_eq!(held(&cluster), holds, "{verb} {trap}");
            process.signal(Signal::CONT);
            if verb == "run" {
                assert_eq!(exit_status(&mut process), 74);
            } else {
                process.wait_for_line("ready ").unwrap();
                process.signal(Signal::KILL);
            }
        }
    }
}

#[test]
fn where_the_watchdog_stood_still_too_the_command_goes_on() {
    let cluster = Cluster::start().unwrap();
    let mut process = start(&cluster, &["run", "asleep"], "echo ready; exec sleep 60");
    let watchdog = watchdog_of(process.id());
    process.signal(Signal::STOP);
    kill_process(watchdog, Signal::STOP).unwrap();
    // Longer than a beat may fail to come, and shorter than the server waits.
    assert!(process.wait_within(Duration::from_secs(7)).unwrap().is_none());
    kill_process(watchdog, Signal::CONT).unwrap();
    // It does not hold the time before against us.
    assert!(process.wait_within(Duration::from_millis(1500)).unwrap().is_none());
    process.signal(Signal::CONT);
    let (command, _) = children_of(process.id());
    assert!(is_alive(&command));
    assert!(process.wait_within(Duration::from_secs(6)).unwrap().is_none());
    assert!(is_alive(&command));
    process.signal(Signal::TERM);
    assert_eq!(exit_status(&mut process), 143);
}

#[test]
fn a_watchdog_that_stands_still_holds_nobody_up() {
    let cluster = Cluster::start().unwrap();
    let mut process = start(
        &cluster,
        &["run", "--max-run", "7s", "long"],
        "echo ready; exec sleep 60",
    );
    kill_process(watchdog_of(process.id()), Signal::STOP).unwrap();
    assert_eq!(exit_status(&mut process), 143);
    let mut process = start(&cluster, &["run", "long"], "echo ready; exec sleep 60");
    kill_process(watchdog_of(process.id()), Signal::STOP).unwrap();
    cluster.psql(END_HOLDERS).unwrap();
    assert_eq!(exit_status(&mut process), 74);
}

fn watchdog_of(latchwork: u32) -> Pid {
    let (_, watchdog) = children_of(latchwork);
    Pid::from_raw(watchdog.parse().unwrap()).unwrap()
}

/// The command and the watchdog.
fn children_of(latchwork: u32) -> (String, String) {
    let children = fs::read_to_string(format!("/proc/{latchwork}/task/{latchwork}/children")).unwrap();
    let is_watchdog = |pid: &&str| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        line.contains("__watchdog")
    };
    let (watchdogs, commands): (Vec<&str>, Vec<&str>) = children.split_whitespace().partition(is_watchdog);
    (commands[0].to_owned(), watchdogs[0].to_owned())
}
