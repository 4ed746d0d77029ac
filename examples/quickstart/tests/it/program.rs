use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use latchwork_harness::{Process, wait_until};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program, without what the environment of the tests might tell it.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quickstart"));
    command
        .args(arguments)
        .env_remove("DATABASE_URL")
        .env_remove("RUST_LOG");
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_owned()).unwrap()
}

/// Runs it to its end.
pub(crate) fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    (status.code().unwrap(), text(&stdout), text(&stderr))
}

/// `quickstart --serve`, up.
pub(crate) struct Serving {
    pub(crate) process: Process,
    /// Of both instances, as `127.0.0.1:PORT`.
    pub(crate) addresses: [String; 2],
    /// What it said on standard error up to its hint on how to end it.
    pub(crate) said: String,
}

impl Serving {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let arguments = [&["--serve"], arguments].concat();
        let mut process = Process::spawn(program(&arguments).stdin(Stdio::null()).stderr(Stdio::piped())).unwrap();
        let addresses = [(); 2].map(|()| {
            let line = process.next_line().unwrap().unwrap();
            line.strip_prefix("listening on http://").unwrap().to_owned()
        });
        let mut said = String::new();
        let mut errors = BufReader::new(process.child_mut().stderr.take().unwrap());
        while !said.contains("Ctrl-C ends") {
            assert_ne!(errors.read_line(&mut said).unwrap(), 0, "{said}");
        }
        // Read on, or the program could not say more.
        std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        Self {
            process,
            addresses,
            said,
        }
    }

    /// The folder of its throw-away cluster.
    pub(crate) fn folder(&self) -> PathBuf {
        let (_, rest) = self.said.split_once("cluster in ").unwrap();
        PathBuf::from(rest.split_once(":\n").unwrap().0)
    }

    /// The process ids of its instances.
    pub(crate) fn instances(&self) -> Vec<u32> {
        let pids = self.said.lines().filter_map(|line| line.split_once(", process "));
        pids.map(|(_, pid)| pid.parse().unwrap()).collect()
    }

    /// Everything that runs for it: itself, what it has started, what these have started.
    pub(crate) fn family(&self) -> Vec<u32> {
        let parents: Vec<(u32, u32)> = all_processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
        let mut family = vec![self.process.id()];
        let mut next = 0;
        while let Some(&of) = family.get(next) {
            family.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| pid));
            next += 1;
        }
        family
    }
}

/// Looks at what was there, when it is said to be gone.
pub(crate) struct Traces {
    pub(crate) folder: PathBuf,
    pub(crate) processes: Vec<u32>,
}

impl Traces {
    pub(crate) fn of(serving: &Serving) -> Self {
        let (folder, processes) = (serving.folder(), serving.family());
        assert!(folder.exists());
        // The program, two instances, the server with its own processes, and a supervisor for each of three.
        assert!(processes.len() > 8, "{processes:?}");
        assert!(serving.instances().iter().all(|pid| processes.contains(pid)));
        Self { folder, processes }
    }

    fn running(&self) -> Vec<u32> {
        self.processes.iter().copied().filter(|pid| is_running(*pid)).collect()
    }

    pub(crate) fn assert_gone(&self) {
        assert!(!self.folder.exists(), "{} is still there", self.folder.display());
        assert_eq!(self.running(), [0; 0], "still there");
    }

    pub(crate) fn assert_gone_soon(&self) {
        wait_until(PATIENCE, || !self.folder.exists() && self.running().is_empty());
        self.assert_gone();
    }
}

pub(crate) fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !stat.starts_with(['Z', 'X']))
}

pub(crate) fn all_processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
}

fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.split(' ').nth(1)?.parse().ok()
}

/// The fields from the state on.
fn stat(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.to_owned())
}
