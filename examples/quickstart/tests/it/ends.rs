//! Nothing is left, however `--serve` ends.

use std::io::Read;
use std::net::TcpListener;

use latchwork_harness::{Process, Signal};
use rustix::process::{Pid, kill_process};

use crate::http::ask_meanwhile;
use crate::program::{PATIENCE, Serving, Traces, program};

/// With a request in each instance.
fn busy() -> (Serving, Traces) {
    let serving = Serving::start(&[]);
    for address in &serving.addresses {
        ask_meanwhile(address, "GET /ai?ms=600000");
    }
    let traces = Traces::of(&serving);
    (serving, traces)
}

#[test]
fn nothing_is_left_when_it_returns_from_ctrl_c() {
    let (mut serving, traces) = busy();
    serving.process.signal(Signal::INT);
    assert_eq!(serving.process.wait().unwrap().code(), Some(0));
    traces.assert_gone();
}

#[test]
fn nothing_is_left_when_it_returns_from_sigterm() {
    let (mut serving, traces) = busy();
    serving.process.signal(Signal::TERM);
    assert_eq!(serving.process.wait().unwrap().code(), Some(0));
    traces.assert_gone();
}

#[test]
fn nothing_is_left_when_its_terminal_is_closed() {
    let (mut serving, traces) = busy();
    serving.process.signal(Signal::HUP);
    assert_eq!(serving.process.wait().unwrap().code(), Some(0));
    traces.assert_gone();
}

#[test]
fn nothing_is_left_soon_after_kill_9() {
    let (mut serving, traces) = busy();
    serving.process.signal(Signal::KILL);
    assert!(!serving.process.wait().unwrap().success());
    traces.assert_gone_soon();
}

#[test]
fn nothing_is_left_of_a_stopped_instance_after_kill_9() {
    let (mut serving, traces) = busy();
    let stopped = Pid::from_raw(serving.instances()[0].cast_signed()).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    serving.process.signal(Signal::KILL);
    assert!(!serving.process.wait().unwrap().success());
    traces.assert_gone_soon();
}

#[test]
fn it_ends_with_1_when_both_instances_are_dead() {
    let (mut serving, traces) = busy();
    for pid in serving.instances() {
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    }
    assert_eq!(serving.process.wait().unwrap().code(), Some(1));
    traces.assert_gone();
}

#[test]
fn nothing_is_left_when_it_is_interrupted_while_it_starts() {
    // A server that takes the connection and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u@{}/d?sslmode=disable", silent.local_addr().unwrap());
    let mut process = Process::spawn(program(&["--serve"]).env("DATABASE_URL", url)).unwrap();
    let (mut of_instance, _) = silent.accept().unwrap();
    process.signal(Signal::INT);
    assert_eq!(process.wait().unwrap().code(), Some(0));
    of_instance.set_read_timeout(Some(PATIENCE)).unwrap();
    // Its first words, and then the end of the connection, which comes with the end of the instance.
    of_instance.read_to_end(&mut Vec::new()).unwrap();
}
