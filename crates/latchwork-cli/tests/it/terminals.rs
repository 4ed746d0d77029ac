//! `run` under a terminal: what the command may do with it, and that all of it ends.

use std::{
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use latchwork_harness::{Cluster, Process, Signal, wait_until};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{END_HOLDERS, PATIENCE, ends, exit_status, held, is_alive, latchwork, state};

/// A terminal that somebody types at.
struct Terminal {
    keys: File,
    line: File,
}

impl Terminal {
    fn open() -> Self {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let name = ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
        // Not as our own controlling terminal.
        let flags = rustix::fs::OFlags::NOCTTY.bits() as i32;
        let mut options = OpenOptions::new();
        let line = std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true).write(true), flags);
        let terminal = Self {
            line: line.open(name).unwrap(),
            keys: File::from(keys),
        };
        // What it shows is read by nobody, and must not fill it up.
        let mut shown = terminal.keys.try_clone().unwrap();
        thread::spawn(move || while shown.read(&mut [0; 512]).is_ok() {});
        terminal
    }

    fn type_in(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Runs a script of the shell in a session whose terminal this is. What it writes is for the test.
    fn run(&self, url: &str, script: &str) -> Process {
        let latchwork = latchwork(url, &[]);
        let mut command = Command::new("setsid");
        command.args(["--ctty", "/bin/bash", "-c", script]);
        for (name, value) in latchwork.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .env("latchwork", env!("CARGO_BIN_EXE_latchwork"))
            .stdin(Stdio::from(self.line.try_clone().unwrap()))
            .stderr(Stdio::from(self.line.try_clone().unwrap()));
        Process::spawn(&mut command).unwrap()
    }
}

#[test]
fn a_command_at_the_end_of_a_pipe_may_read_from_the_terminal() {
    let cluster = Cluster::start().unwrap();
    let mut terminal = Terminal::open();
    let mut job = terminal.run(
        &cluster.url(),
        "echo data | $latchwork run restore -- /bin/sh -c 'read a; echo ready; read b < /dev/tty; echo got $a $b'",
    );
    job.wait_for_line("ready").unwrap();
    terminal.type_in("password\n");
    assert_eq!(job.wait_for_line("got ").unwrap(), "data password");
    assert_eq!(exit_status(&mut job), 0);
}

#[test]
fn ctrl_c_reaches_the_command_once_and_latchwork_has_its_status() {
    let cluster = Cluster::start().unwrap();
    let mut terminal = Terminal::open();
    let mut job = terminal.run(
        &cluster.url(),
        "exec $latchwork run typed -- /bin/sh -c 'trap \"echo told\" INT; echo ready; read a; echo got $a; exit 5'",
    );
    job.wait_for_line("ready").unwrap();
    terminal.type_in("\x03");
    assert_eq!(job.next_line().unwrap().as_deref(), Some("told"));
    terminal.type_in("on\n");
    let mut rest = Vec::new();
    while let Some(line) = job.next_line().unwrap() {
        rest.push(line);
    }
    assert!(!rest.contains(&"told".to_owned()), "{rest:?}");
    assert_eq!(exit_status(&mut job), 5);
}

/// What a command has started: a child, one whose parent has ended, and one in a group of its own.
const FAMILY: &str = "trap \"\" TERM; sleep 64 & child=$!; orphan=$(sleep 65 > /dev/null & echo $!); \
     set -m; sleep 66 & echo ready $$ $child $orphan $!; while :; do sleep 0.05; done";

fn family(job: &mut Process) -> Vec<String> {
    let pids = job.wait_for_line("ready ").unwrap();
    let pids: Vec<String> = pids.split(' ').map(str::to_owned).collect();
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|pid| is_alive(pid)));
    pids
}

#[test]
fn a_loss_ends_all_that_the_command_has_started() {
    let cluster = Cluster::start().unwrap();
    let terminal = Terminal::open();
    let script = format!("exec $latchwork run --grace 300ms lost -- /bin/bash -c '{FAMILY}'");
    let mut job = terminal.run(&cluster.url(), &script);
    let pids = family(&mut job);
    cluster.psql(END_HOLDERS).unwrap();
    assert_eq!(exit_status(&mut job), 74);
    for pid in &pids {
        assert!(ends(pid), "{pid} of {pids:?}");
    }
}

#[test]
fn kill_9_leaves_nothing_of_it() {
    let cluster = Cluster::start().unwrap();
    let terminal = Terminal::open();
    let script = format!("exec $latchwork run --grace 300ms killed -- /bin/bash -c '{FAMILY}'");
    let mut job = terminal.run(&cluster.url(), &script);
    let pids = family(&mut job);
    job.signal(Signal::KILL);
    for pid in &pids {
        assert!(ends(pid), "{pid} of {pids:?}");
    }
}

#[test]
fn a_loss_leaves_the_others_of_the_job_alone() {
    let cluster = Cluster::start().unwrap();
    let terminal = Terminal::open();
    let mut job = terminal.run(
        &cluster.url(),
        "sleep 67 & echo other $!; $latchwork run lost -- /bin/sh -c 'echo ready; exec sleep 60'; echo status $?; wait",
    );
    let other = job.wait_for_line("other ").unwrap();
    job.wait_for_line("ready").unwrap();
    cluster.psql(END_HOLDERS).unwrap();
    assert_eq!(job.wait_for_line("status ").unwrap(), "74");
    assert!(is_alive(&other));
    let killed = Command::new("kill").arg(&other).status().unwrap();
    assert!(killed.success());
}

#[test]
fn ctrl_z_stops_nobody_of_the_job() {
    let cluster = Cluster::start().unwrap();
    let mut terminal = Terminal::open();
    // With job control, as at a prompt: else the kernel stops nobody.
    let mut job = terminal.run(
        &cluster.url(),
        "set -m; exec 3>&1; /bin/sh -c 'echo partner $$ >&3; exec sleep 68' | \
         $latchwork run stopped -- /bin/sh -c 'echo ready $$; read a < /dev/tty; echo got $a'; exit 0",
    );
    let partner = job.wait_for_line("partner ").unwrap();
    job.wait_for_line("ready").unwrap();
    terminal.type_in("\x1a");
    terminal.type_in("on\n");
    assert_eq!(job.wait_for_line("got ").unwrap(), "on");
    assert!(wait_until(PATIENCE, || state(&partner) == Some('S')));
    let killed = Command::new("kill").arg(&partner).status().unwrap();
    assert!(killed.success());
}

#[test]
fn a_command_in_the_background_waits_for_the_terminal_and_keeps_its_lock() {
    let cluster = Cluster::start().unwrap();
    let mut terminal = Terminal::open();
    let mut job = terminal.run(
        &cluster.url(),
        "set -m; $latchwork run waits -- /bin/sh -c 'echo ready $$; read a < /dev/tty; echo got $a' & \
         read a; fg > /dev/null; exit 0",
    );
    let command = job.wait_for_line("ready ").unwrap();
    assert!(wait_until(PATIENCE, || state(&command) == Some('T')));
    terminal.type_in("go\n");
    // Not before the shell has read its line: the next is for the command.
    assert!(wait_until(PATIENCE, || state(&command) == Some('S')));
    terminal.type_in("on\n");
    assert_eq!(job.wait_for_line("got ").unwrap(), "on");
}

#[test]
fn a_terminal_that_stops_writers_in_the_background_holds_nobody_up() {
    let cluster = Cluster::start().unwrap();
    let terminal = Terminal::open();
    let mut job = terminal.run(
        &cluster.url(),
        "set -m; stty tostop; $latchwork run silent -- /bin/sh -c 'echo ready; exec sleep 60' & wait $!; echo status $?",
    );
    job.wait_for_line("ready").unwrap();
    cluster.psql(END_HOLDERS).unwrap();
    assert_eq!(job.wait_for_line("status ").unwrap(), "74");
}

#[test]
fn a_signal_comes_once_through_a_run_inside_another() {
    let cluster = Cluster::start().unwrap();
    let terminal = Terminal::open();
    // The one inside has the terminal, or none.
    for inside in ["$latchwork", "setsid $latchwork"] {
        let mut job = terminal.run(
            &cluster.url(),
            &format!("exec $latchwork run outer -- {inside} run inner -- /bin/sh -c '{TOLD}'"),
        );
        job.wait_for_line("ready").unwrap();
        for (signal, word) in [(Signal::TERM, "told"), (Signal::USR1, "asked")] {
            job.signal(signal);
            assert_eq!(job.next_line().unwrap().as_deref(), Some(word), "{inside}");
        }
        job.signal(Signal::USR2);
        assert_eq!(job.next_line().unwrap(), None, "{inside}");
        assert_eq!(exit_status(&mut job), 6, "{inside}");
    }
}

#[test]
fn signals_reach_what_the_command_has_started() {
    let cluster = Cluster::start().unwrap();
    let terminal = Terminal::open();
    let mut job = terminal.run(
        &cluster.url(),
        "exec $latchwork run told -- /bin/sh -c 'sleep 69 & echo ready $!; wait'",
    );
    let inner = job.wait_for_line("ready ").unwrap();
    job.signal(Signal::TERM);
    assert_eq!(exit_status(&mut job), 143);
    assert!(ends(&inner));
}

/// One run inside another, whose command and an orphan of it ignore TERM. The shell of the terminal stays when they have
/// ended, or else the orphan would get a HUP.
const NESTED: &str = "$latchwork run --grace 300ms outer -- /bin/sh -c 'export outer=$PPID; trap : USR1; \
     $latchwork run --grace 300ms inner -- /bin/bash -c \"trap \\\"\\\" TERM; trap \\\"echo told\\\" USR1; \
     orphan=\\$(sleep 65 > /dev/null & echo \\$!); echo ready \\$outer \\$PPID \\$\\$ \\$orphan; while :; do sleep 0.05; done\" & \
     while :; do wait; done'; exec sleep 70 > /dev/null";

/// The outer `latchwork`, the inner one, its command, and the orphan.
fn nested(job: &mut Process) -> [String; 4] {
    let pids = job.wait_for_line("ready ").unwrap();
    let pids: Vec<String> = pids.split(' ').map(str::to_owned).collect();
    assert!(pids.iter().all(|pid| is_alive(pid)));
    pids.try_into().unwrap()
}

fn kill(signal: &str, pid: &str) {
    assert!(Command::new("kill").args([signal, pid]).status().unwrap().success());
}

#[test]
fn signals_for_a_run_leave_the_watchdog_of_one_inside_it_alone() {
    let cluster = Cluster::start().unwrap();
    let terminal = Terminal::open();
    let mut job = terminal.run(&cluster.url(), NESTED);
    let [outer, inner, command, orphan] = nested(&mut job);
    kill("-USR1", &outer);
    job.wait_for_line("told").unwrap();
    kill("-KILL", &inner);
    assert!(ends(&command));
    assert!(ends(&orphan));
}

#[test]
fn kill_9_leaves_nothing_of_a_run_inside_another_either() {
    let cluster = Cluster::start().unwrap();
    let terminal = Terminal::open();
    let mut job = terminal.run(&cluster.url(), NESTED);
    let [outer, inner, command, orphan] = nested(&mut job);
    kill("-KILL", &outer);
    for pid in [inner, command, orphan] {
        assert!(ends(&pid));
    }
}

#[test]
fn a_terminal_that_shows_nothing_for_now_does_not_keep_the_command_from_its_end() {
    let cluster = Cluster::start().unwrap();
    let mut terminal = Terminal::open();
    let mut job = terminal.run(
        &cluster.url(),
        "exec $latchwork run --grace 0 silent -- /bin/sh -c 'echo ready $$; exec sleep 60'",
    );
    let command = job.wait_for_line("ready ").unwrap();
    terminal.type_in("\x13");
    // Nothing shows when the kernel has taken it in.
    thread::sleep(Duration::from_millis(200));
    cluster.psql(END_HOLDERS).unwrap();
    // Sooner than the watchdog would.
    assert!(wait_until(Duration::from_secs(3), || !is_alive(&command)));
    assert_eq!(exit_status(&mut job), 74);
}

#[test]
fn break_asks_and_does_nothing_when_refused() {
    let cluster = Cluster::start().unwrap();
    let mut terminal = Terminal::open();
    let _holder = crate::support::start(&cluster, &["run", "stuck"], "echo ready; exec sleep 60");
    for (answer, status) in [("n\n", 1), ("\n", 1), ("y\n", 0)] {
        let mut asked = terminal.run(&cluster.url(), "exec $latchwork break stuck");
        terminal.type_in(answer);
        let said = asked.next_line().unwrap().unwrap();
        assert_eq!(exit_status(&mut asked), status, "{said}");
        assert_eq!(said == "nothing was done", status == 1, "{said}");
        let held = held(&cluster);
        assert_eq!(held, if status == 1 { "1" } else { "0" });
    }
}

/// Says that it is there, and what it is told, each time: what it waits for takes none of these signals, so that one does not
/// hide another.
const TOLD: &str = "trap \"\" TERM USR1 USR2; sleep 60 & trap \"echo told\" TERM; trap \"echo asked\" USR1; \
     trap \"kill -KILL $!; exit 6\" USR2; echo ready; while :; do wait; done";
