use std::process::{Command, Stdio};
use std::time::Duration;

use latchwork_harness::{HarnessError, Process, Signal, wait_until};

const PATIENCE: Duration = Duration::from_secs(30);

fn shell(script: &str) -> Process {
    Process::spawn(Command::new("/bin/sh").args(["-c", script]).stdin(Stdio::null())).unwrap()
}

fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[test]
fn a_process_is_gone_after_drop_even_when_stopped() {
    let mut process = shell("echo pid $$; exec sleep 60");
    let pid = process.wait_for_line("pid ").unwrap().parse().unwrap();
    assert_eq!(process.id(), pid);
    process.signal(Signal::STOP);
    assert!(wait_until(PATIENCE, || state(pid) == Some('T')));
    drop(process);
    assert_eq!(state(pid), None);
}

#[test]
fn a_process_is_gone_when_its_parent_is_killed() {
    let mut parent = Command::new(env!("CARGO_BIN_EXE_throw-away-cluster"));
    let mut parent = Process::spawn(parent.arg("with-child").stdin(Stdio::piped())).unwrap();
    let child = parent.wait_for_line("child ").unwrap().parse().unwrap();
    assert!(state(child).is_some());
    parent.signal(Signal::KILL);
    assert!(!parent.wait().unwrap().success());
    assert!(wait_until(
        PATIENCE,
        || !matches!(state(child), Some(state) if state != 'Z')
    ));
}

#[test]
fn waiting_for_a_line_that_never_comes_shows_what_came() {
    let error = shell("echo something; exit 3").wait_for_line("ready").unwrap_err();
    assert!(matches!(error, HarnessError::Failed { .. }));
    assert!(
        error.to_string().contains("something") && error.to_string().contains('3'),
        "{error}"
    );
}

#[test]
fn a_limit_on_the_end_is_kept() {
    let mut process = shell("exec sleep 60");
    assert_eq!(process.wait_within(Duration::ZERO).unwrap(), None);
    process.signal(Signal::KILL);
    assert!(
        process
            .wait_within(PATIENCE)
            .unwrap()
            .is_some_and(|status| !status.success())
    );
}
