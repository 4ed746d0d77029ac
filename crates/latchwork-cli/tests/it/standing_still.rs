//! A `latchwork` that stands still, and whom nobody asks.

use std::time::Duration;

use latchwork_harness::{Cluster, Process, Signal};
use rustix::process::{Pid, kill_process};

use crate::support::{END_HOLDERS, children_of, ends, exit_status, held, is_alive, latchwork, start};

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
    let (command, _) = command_and_watchdog(process.id());
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
    assert_eq!(exit_status(&mut process), 124);
    let mut process = start(&cluster, &["run", "long"], "echo ready; exec sleep 60");
    kill_process(watchdog_of(process.id()), Signal::STOP).unwrap();
    cluster.psql(END_HOLDERS).unwrap();
    assert_eq!(exit_status(&mut process), 74);
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
