//! The command that is run: how it begins, is told of signals, and ends.

use std::{
    cell::Cell,
    ffi::OsString,
    io::{self, IsTerminal as _},
    process::ExitStatus,
    rc::Rc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process, test_kill_process_group};
use std::os::unix::process::ExitStatusExt as _;
use tokio::{
    process::Child,
    time::{Instant, sleep, timeout_at},
};

use crate::{
    failure::{Failure, Status},
    watchdog::{Watchdog, cannot_run},
};

/// A command, and how long it may take to end once it is told to.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) command: Vec<OsString>,
    pub(crate) grace: Duration,
}

/// Whom signals go to.
///
/// A command has a process group of its own, so that signals reach all that it has started. On a terminal it stays in
/// ours instead: a group in the background may not read from the terminal, which sends its own signals to all of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Group(Pid),
    Process(Pid),
}

impl Target {
    /// Passes a signal on that came to us.
    pub(crate) fn pass_on(self, signal: Signal) {
        match (self, signal) {
            (Self::Group(_), Signal::TSTP) => {}
            // Ctrl-Z has stopped it, but the lock can't wait for it.
            (Self::Process(_), Signal::TSTP) => self.send(Signal::CONT),
            // The terminal has sent it to the command too.
            (Self::Process(_), Signal::INT | Signal::QUIT | Signal::WINCH) => {}
            _ => self.send(signal),
        }
    }

    /// Whoever has ended takes no signal.
    pub(crate) fn send(self, signal: Signal) {
        let _ = match self {
            Self::Group(pid) => kill_process_group(pid, signal),
            Self::Process(pid) => kill_process(pid, signal),
        };
    }

    /// Asks to end; who was stopped must go on to be able to.
    pub(crate) fn ask_to_end(self) {
        self.send(Signal::TERM);
        self.send(Signal::CONT);
    }

    pub(crate) fn is_gone(self) -> bool {
        let found = match self {
            Self::Group(pid) => test_kill_process_group(pid),
            Self::Process(pid) => test_kill_process(pid),
        };
        found == Err(rustix::io::Errno::SRCH)
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
    pub(crate) fn start(
        &self,
        environment: &[(&str, String)],
        signals: &Rc<Cell<Option<Target>>>,
    ) -> Result<Running, Failure> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::usage("there is no command to run"));
        };
        let on_terminal = io::stdin().is_terminal();
        // Before the command, so that there is no moment at which nobody would end it.
        let mut watchdog = Watchdog::start(self.grace)?;
        let mut command = watchdog.command(program, on_terminal);
        command
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)));
        if !on_terminal {
            command.process_group(0);
        }
        let child = command.spawn().map_err(|error| cannot_run(program, &error))?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.ok_or_else(|| Failure::new(Status::INTERNAL, "the command has no process id"))?;
        let target = if on_terminal {
            Target::Process(pid)
        } else {
            Target::Group(pid)
        };
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
    signals: Rc<Cell<Option<Target>>>,
}

impl Running {
    /// Waits for its end. Has no effect if it is dropped before.
    pub(crate) async fn ended(&mut self) -> Result<Status, Failure> {
        let status = self.child.wait().await?;
        self.signals.set(None);
        self.watchdog.dismiss();
        Ok(shell_status(status))
    }

    /// Asks it to end, with all of its group, and after the grace makes it.
    pub(crate) async fn stop(mut self) -> Result<Status, Failure> {
        let until = Instant::now() + self.grace;
        self.target.ask_to_end();
        // Not `ended`: what the command has started may still be there.
        let asked = timeout_at(until, async {
            let status = self.child.wait().await;
            while !self.target.is_gone() {
                sleep(LOOK_AGAIN).await;
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
        self.signals.set(None);
        self.watchdog.dismiss();
        Ok(shell_status(status))
    }
}

fn shell_status(status: ExitStatus) -> Status {
    match (status.code(), status.signal()) {
        (Some(code), _) => Status::of_command(code as u8),
        (None, Some(signal)) => Status::of_signal(signal),
        (None, None) => Status::INTERNAL,
    }
}

/// How often it is looked whether a group has ended, of which nobody tells.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(10);
