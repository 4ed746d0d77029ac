//! The command that is run: how it begins, is told of signals, and ends.

use std::{ffi::OsString, fmt, process::ExitStatus, rc::Rc, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::os::unix::process::ExitStatusExt as _;
use tokio::{
    process::Child,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    failure::{Failure, Status},
    name::VARIABLES,
    signals::Recipient,
    terminal,
    tree::{MARK, Mark, Tree, read_pid},
    watchdog::{Watchdog, cannot_run},
};

/// A command, and how long it may take to end once it is told to.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) command: Vec<OsString>,
    pub(crate) grace: Duration,
}

/// Whom signals go to: the command, and all that it has started.
///
/// A command has a process group of its own. Under a terminal it stays in ours instead, which is a job of the shell with
/// perhaps others in it: a group in the background may not read from the terminal, and to put the command's in the foreground
/// would take the terminal from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Group(Pid),
    Tree(Tree),
}

impl Target {
    /// Passes a signal on that came to us.
    pub(crate) fn pass_on(self, signal: Signal) {
        match (self, signal) {
            // Ctrl-Z has stopped the whole job, but the lock can't wait for it.
            (Self::Tree(_), Signal::TSTP) => terminal::go_on(),
            (_, Signal::TSTP | Signal::TTIN | Signal::TTOU) => {}
            // The terminal has sent it to the command too.
            (Self::Tree(_), Signal::INT | Signal::QUIT | Signal::WINCH) if terminal::is_ours() => {}
            _ => self.send(signal),
        }
    }

    /// Whoever has ended takes no signal.
    pub(crate) fn send(self, signal: Signal) {
        match self {
            Self::Group(pid) => {
                let _ = kill_process_group(pid, signal);
            }
            Self::Tree(tree) => tree.send(signal),
        }
    }

    /// Asks to end; who was stopped must go on to be able to.
    pub(crate) fn ask_to_end(self) {
        self.send(Signal::TERM);
        self.send(Signal::CONT);
    }

    pub(crate) fn is_gone(self) -> bool {
        match self {
            Self::Group(pid) => test_kill_process_group(pid) == Err(rustix::io::Errno::SRCH),
            Self::Tree(tree) => tree.is_gone(),
        }
    }

    /// After how long to look whether it is gone, of which nobody tells. For a tree that is a look at every process.
    pub(crate) const fn look_again(self) -> Duration {
        match self {
            Self::Group(_) => Duration::from_millis(10),
            Self::Tree(_) => Duration::from_millis(50),
        }
    }

    /// Reads what `Display` writes.
    pub(crate) fn read(text: &str) -> Option<Self> {
        match text.split_once(' ')? {
            ("group", pid) => read_pid(pid).map(Self::Group),
            ("tree", tree) => Tree::read(tree).map(Self::Tree),
            _ => None,
        }
    }

    /// What a command with this process id is.
    pub(crate) fn of(pid: Pid, mark: Option<Mark>) -> Self {
        mark.map_or(Self::Group(pid), |mark| Self::Tree(Tree::of(pid, mark)))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(pid) => write!(f, "group {}", pid.as_raw_pid()),
            Self::Tree(tree) => write!(f, "tree {tree}"),
        }
    }
}

impl Work {
    /// The name of the program, without its folder.
    pub(crate) fn program(&self) -> String {
        let name = self
            .command
            .first()
            .map(std::path::Path::new)
            .and_then(std::path::Path::file_name);
        name.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Starts the command, and makes it the target of signals.
    pub(crate) fn start(&self, environment: &[(&str, String)], signals: &Rc<Recipient>) -> Result<Running, Failure> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::usage("there is no command to run"));
        };
        let mark = terminal::is_there().then(Mark::new);
        // Before the command, so that there is no moment at which nobody would end it.
        let watchdog = Watchdog::start(self.grace)?;
        let mut command = watchdog.command(program, mark);
        // Those of a run that this one is nested in say nothing of this lock.
        for name in VARIABLES {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)));
        // In a group of its own it needs none, but it must not pass for the command of a run that this one is nested in.
        command.env(MARK, mark.unwrap_or_else(Mark::new).to_string());
        if mark.is_none() {
            command.process_group(0);
        }
        let child = command.spawn().map_err(|error| cannot_run(program, &error))?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| Failure::new(Status::INTERNAL, "the command has no process id"))?;
        let target = Target::of(pid, mark);
        watchdog.watch(target);
        signals.set(Some(target));
        Ok(Running {
            child,
            target,
            watchdog,
            grace: self.grace,
            signals: Rc::clone(signals),
        })
    }
}

/// A command that runs. Dropped, it is left to the watchdog.
pub(crate) struct Running {
    child: Child,
    target: Target,
    watchdog: Watchdog,
    grace: Duration,
    signals: Rc<Recipient>,
}

impl Running {
    /// Waits for its end. Has no effect if it is dropped before.
    pub(crate) async fn ended(&mut self) -> Result<Status, Failure> {
        let status = self.child.wait().await?;
        Ok(self.over(status))
    }

    /// Whether the watchdog has told the command to end, since this process stood still for too long.
    pub(crate) fn was_given_up(&self) -> bool {
        self.watchdog.has_acted()
    }

    /// Asks it to end, with all that it has started, and after the grace makes it.
    pub(crate) async fn stop(mut self) -> Result<Status, Failure> {
        let until = Instant::now() + self.grace;
        self.target.ask_to_end();
        // Not `ended`: what the command has started may still be there.
        let asked = timeout_at(until, async {
            let status = self.child.wait().await;
            while !self.target.is_gone() {
                sleep(self.target.look_again()).await;
            }
            status
        });
        let status = match asked.await {
            Ok(status) => status?,
            Err(_) => {
                self.target.send(Signal::KILL);
                self.child.wait().await?
            }
        };
        Ok(self.over(status))
    }

    fn over(&mut self, status: ExitStatus) -> Status {
        self.signals.set(None);
        self.watchdog.dismiss();
        shell_status(status)
    }
}

fn shell_status(status: ExitStatus) -> Status {
    match (status.code(), status.signal()) {
        (Some(code), _) => Status::of_command(code as u8),
        (None, Some(signal)) => Status::of_signal(signal),
        (None, None) => Status::INTERNAL,
    }
}
