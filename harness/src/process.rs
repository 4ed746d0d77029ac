use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::HarnessError;
use crate::supervisor::Supervisor;
use crate::wait::wait_until;

/// A child process that is killed when this value is dropped, and also when this process ends in any other way.
///
/// For tests that need another process of ours to kill (`-9`), to stop or to listen to.
///
/// # Examples
///
/// ```
/// use std::process::Command;
/// use latchwork_harness::{Process, Signal};
///
/// # fn main() -> Result<(), latchwork_harness::HarnessError> {
/// let mut process = Process::spawn(Command::new("/bin/sh").args(["-c", "echo ready; exec sleep 60"]))?;
/// process.wait_for_line("ready")?;
/// process.signal(Signal::KILL);
/// assert!(!process.wait()?.success());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Option<Lines<BufReader<ChildStdout>>>,
    supervisor: Supervisor,
}

impl Process {
    /// Starts a command; its standard output is captured, for [`next_line`](Self::next_line).
    ///
    /// # Errors
    ///
    /// Fails when the program cannot be started.
    pub fn spawn(command: &mut Command) -> Result<Self, HarnessError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let supervisor = Supervisor::start(None)?;
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(HarnessError::io(format!("start {name}")))?;
        let lines = child.stdout.take().map(|output| BufReader::new(output).lines());
        let process = Self {
            child,
            lines,
            supervisor,
        };
        process.supervisor.watch("KILL", process.id())?;
        Ok(process)
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal; a process that has ended takes none.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits for the next line of its output; `None` at the end.
    ///
    /// # Errors
    ///
    /// Fails when the pipe cannot be read.
    pub fn next_line(&mut self) -> Result<Option<String>, HarnessError> {
        let line = self.lines.as_mut().and_then(Iterator::next);
        line.transpose().map_err(HarnessError::io("read a child's output"))
    }

    /// Reads its output up to a line that begins with `prefix`, and returns the rest of that line.
    ///
    /// # Errors
    ///
    /// Fails when the output ends before that.
    pub fn wait_for_line(&mut self, prefix: &str) -> Result<String, HarnessError> {
        let mut output = String::new();
        while let Some(line) = self.next_line()? {
            if let Some(rest) = line.strip_prefix(prefix) {
                return Ok(rest.to_owned());
            }
            output.push_str(&line);
            output.push('\n');
        }
        let status = self.wait()?.to_string();
        Err(HarnessError::Failed {
            program: format!("a child that was to print {prefix:?}"),
            status,
            output,
        })
    }

    /// Waits for its end, and closes its standard input first.
    ///
    /// # Errors
    ///
    /// Fails when the system cannot tell.
    pub fn wait(&mut self) -> Result<ExitStatus, HarnessError> {
        let status = self.child.wait().map_err(HarnessError::io("wait for a child"))?;
        self.supervisor.forget(self.id())?;
        Ok(status)
    }

    /// Waits for its end up to a limit; `None` after it.
    ///
    /// # Errors
    ///
    /// Fails when the system cannot tell.
    pub fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>, HarnessError> {
        if wait_until(limit, || !matches!(self.child.try_wait(), Ok(None))) {
            self.wait().map(Some)
        } else {
            Ok(None)
        }
    }

    /// The child, for its standard input and error.
    pub fn child_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.wait());
    }
}

/// A number as a process id; those of groups and of the kernel are none.
pub(crate) fn process_id(raw: i32) -> Option<Pid> {
    if raw > 0 { Pid::from_raw(raw) } else { None }
}

/// The parent of a process; `None` when the process is gone.
pub(crate) fn parent(pid: Pid) -> Option<Pid> {
    let stat = stat(pid)?;
    process_id(stat.split(' ').nth(1)?.parse().ok()?)
}

/// The processes that `of` has started and that still run.
pub(crate) fn children(of: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(process_id)
        .filter(|pid| parent(*pid) == Some(of))
        .collect()
}

/// Whether a process exists and is more than a zombie.
pub(crate) fn exists(pid: Pid) -> bool {
    stat(pid).is_some_and(|stat| !stat.starts_with(['Z', 'X']))
}

/// The fields from the state on; the name before them may hold blanks and brackets.
fn stat(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    stat.rsplit_once(") ").map(|(_, fields)| fields.to_owned())
}
