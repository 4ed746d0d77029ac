//! Servers, commands, and looks at processes.

use std::{
    fs,
    process::{Command, Output, Stdio},
    sync::OnceLock,
    time::Duration,
};

use latchwork_harness::{Cluster, Process, wait_until};

/// How long anything here may take on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server for tests that leave servers alone. It ends with this process.
pub(crate) fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start().unwrap())
}

/// Ends the sessions of all that hold an advisory lock.
pub(crate) const END_HOLDERS: &str = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks \
     WHERE locktype = 'advisory' AND granted) AS holders";

/// `latchwork` with these arguments, and no settings but the database.
pub(crate) fn latchwork(url: &str, arguments: &[&str]) -> Command {
    let mut command = without_database(arguments);
    command.env("DATABASE_URL", url);
    command
}

/// `latchwork` with no settings. In a session of its own, of which it is the first: the tests mean the same under a terminal.
pub(crate) fn without_database(arguments: &[&str]) -> Command {
    let mut command = Command::new("setsid");
    command.arg(env!("CARGO_BIN_EXE_latchwork"));
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("PG") || name_text.starts_with("LATCHWORK") || name_text == "DATABASE_URL" {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs `latchwork` on the shared server to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    latchwork(&cluster().url(), arguments).output().unwrap()
}

/// The exit status of `latchwork` on the shared server.
pub(crate) fn status(arguments: &[&str]) -> i32 {
    let output = run(arguments);
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

pub(crate) fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Starts `latchwork run NAME -- sh -c SCRIPT` and waits until the script has said that it is there.
pub(crate) fn start(cluster: &Cluster, arguments: &[&str], script: &str) -> Process {
    let mut arguments = arguments.to_vec();
    arguments.extend(["--", "/bin/sh", "-c", script]);
    let mut command = latchwork(&cluster.url(), &arguments);
    let mut process = Process::spawn(&mut command).unwrap();
    process.wait_for_line("ready").unwrap();
    process
}

/// How a process of ours has ended, in time.
pub(crate) fn exit_status(process: &mut Process) -> i32 {
    let status = process.wait_within(PATIENCE).unwrap().expect("an end in time");
    status.code().unwrap_or_else(|| panic!("{status}"))
}

/// How many sessions hold an advisory lock in a cluster.
pub(crate) fn held(cluster: &Cluster) -> String {
    cluster
        .psql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted")
        .unwrap()
}

/// Whether a process is there and is no zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The processes that one has started, and their command lines. `/proc/.../children` would miss some now and then.
pub(crate) fn children_of(parent: u32) -> Vec<(String, String)> {
    let list = Command::new("ps")
        .args(["-o", "pid=,args=", "--ppid", &parent.to_string()])
        .output()
        .unwrap();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let lines = list.lines().filter_map(|line| line.trim().split_once(' '));
    lines.map(|(pid, line)| (pid.to_owned(), line.to_owned())).collect()
}

/// The letter that `/proc` has for what a process does.
pub(crate) fn state(pid: &str) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

pub(crate) fn ends(pid: &str) -> bool {
    wait_until(PATIENCE, || !is_alive(pid))
}
