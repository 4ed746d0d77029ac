//! One server process that the supervisor knows of.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::HarnessError;
use crate::scratch::Scratch;
use crate::wait::wait_until;

/// Waits for a word on standard input, so that the supervisor knows the pid before the server exists; if the harness
/// dies first, the end of file ends the shell.
const GATE: &str = r#"read -r go && exec "$@" </dev/null"#;

/// What to start.
#[derive(Debug)]
pub(crate) struct ServerCommand<'a> {
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<&'a OsStr>,
    /// The name of the log in the scratch folder; both output streams go there.
    pub(crate) log: &'a str,
    /// The signal that ends it at once.
    pub(crate) last_signal: &'static str,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts it as the scratch folder's user, in a process group of its own.
    pub(crate) fn start(scratch: &Scratch, command: &ServerCommand<'_>) -> Result<Self, HarnessError> {
        let log = scratch.path().join(command.log);
        if !log.exists() {
            scratch.write(command.log, b"")?;
        }
        let output = OpenOptions::new()
            .append(true)
            .open(&log)
            .map_err(HarnessError::path("open", &log))?;
        let errors = output.try_clone().map_err(HarnessError::path("open", &log))?;
        let mut child = scratch
            .user()
            .command("/bin/sh")
            .args(["-c", GATE, "latchwork-gate"])
            .arg(command.program)
            .args(&command.arguments)
            .current_dir(scratch.path())
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            // Ctrl-C must not reach the server before its users are done with it.
            .process_group(0)
            .spawn()
            .map_err(HarnessError::path("start", command.program))?;
        let registered = scratch.supervisor().watch(command.last_signal, child.id());
        if let Some(mut gate) = child.stdin.take() {
            // A shell that is already gone shows in the exit status.
            drop(gate.write_all(b"go\n"));
        }
        registered.map(|()| Self { child, log })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal; a server that has ended takes none.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid(), signal);
    }

    /// How it ended, if it has.
    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end; `false` after the limit.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        wait_until(limit, || self.try_wait().is_some())
    }

    /// Waits until `ready`, and fails when the server ends before that or takes too long.
    pub(crate) fn wait_ready(
        &mut self,
        name: &'static str,
        limit: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), HarnessError> {
        let mut ended = None;
        let in_time = wait_until(limit, || {
            ended = self.try_wait();
            ended.is_some() || ready()
        });
        if let Some(status) = ended {
            return Err(HarnessError::StartFailed {
                server: name,
                status: status.to_string(),
                log: self.log_tail(),
            });
        }
        if in_time {
            return Ok(());
        }
        Err(HarnessError::TimedOut {
            what: format!("starting {name}"),
            seconds: limit.as_secs(),
            log: self.log_tail(),
        })
    }

    pub(crate) fn log_tail(&self) -> String {
        crate::error::log_tail(&read_log(&self.log))
    }

    /// Collects the process after the supervisor has ended it, or ends it now.
    pub(crate) fn reap(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The whole log; a file that is not there yet is empty.
pub(crate) fn read_log(path: &Path) -> String {
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}
