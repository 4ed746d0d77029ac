//! A `latchwork` that stands still, and whom nobody asks.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use latchwork_harness::{Cluster, Process, Signal};
use rustix::process::{Pid, kill_process};

use crate::support::{END_HOLDERS, children_of, ends, exit_status, held, is_alive, latchwork, start};

#[test]
fn the_command_ends_before_the_server_lets_the_next_one_in() {
    let cluster = Cluster::start().unwrap();
    // One that goes when it is told to, and one that has to be made.
    for trap in ["", "trap '' TERM;"] {
        for verb in ["run", "elect"] {
            let script = format!("{trap} echo ready $$; while :; do sleep 0.05; done");
            let arguments = [verb, "--grace", "1s", "still", "--", "/bin/sh", "-c", &script];
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
    let (watchdog, (command, _)) = (watchdog_of(process.id()), command_and_watchdog(process.id()));
    process.signal(Signal::STOP);
    kill_process(watchdog, Signal::STOP).unwrap();
    // Longer than a beat may fail to come, and shorter than the server waits.
    lives_on(&command, Duration::from_secs(7));
    kill_process(watchdog, Signal::CONT).unwrap();
    // It does not hold the time before against us.
    lives_on(&command, Duration::from_millis(1500));
    process.signal(Signal::CONT);
    lives_on(&command, Duration::from_secs(6));
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
    assert_eq!(exit_status(&mut process), 124);
    let mut process = start(&cluster, &["run", "long"], "echo ready; exec sleep 60");
    kill_process(watchdog_of(process.id()), Signal::STOP).unwrap();
    cluster.psql(END_HOLDERS).unwrap();
    assert_eq!(exit_status(&mut process), 74);
}

/// That a process does not end in so much time.
fn lives_on(pid: &str, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        assert!(is_alive(pid), "{:?} before its time", until - Instant::now());
        sleep(Duration::from_millis(20));
    }
}

fn watchdog_of(latchwork: u32) -> Pid {
    let (_, watchdog) = command_and_watchdog(latchwork);
    Pid::from_raw(watchdog.parse().unwrap()).unwrap()
}

fn command_and_watchdog(latchwork: u32) -> (String, String) {
    let (watchdogs, commands): (Vec<_>, Vec<_>) = children_of(latchwork)
        .into_iter()
        .partition(|(_, line)| line.contains("__watchdog"));
    let [(watchdog, _)] = &watchdogs[..] else {
        panic!("{watchdogs:?} {commands:?}");
    };
    (commands[0].0.clone(), watchdog.clone())
}
