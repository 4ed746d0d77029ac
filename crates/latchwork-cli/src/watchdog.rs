//! The process that ends a command whose `latchwork` is gone.
//!
//! When `latchwork` is killed its connection closes, so its lock goes to the next at once, and nobody is left who could
//! stop the command. A small process of its own sees that, by the end of a pipe that `latchwork` alone has the other end
//! of. A parent-death signal would not reach what the command has started.
//!
//! The command must not run before the watchdog knows of it. So what is started is this program once more, which reports
//! itself to the watchdog and then becomes the command. Where there is no `/proc` to report through, `latchwork` reports
//! the command when it has started it, and a `kill -9` within that moment leaves it running.

use std::{
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    io::{self, BufRead as _, PipeWriter, Write as _},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    process::{self, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpid, getppid};
use tokio::process::{Child, Command};

use crate::{
    child::{LOOK_AGAIN, Target},
    failure::{Failure, Status},
};

/// What this program is besides the command that people use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The watchdog.
    Watchdog,
    /// What becomes the command.
    Command,
}

impl Part {
    /// The part that the first argument names.
    pub(crate) fn of(verb: &OsString) -> Option<Self> {
        match verb.to_str()? {
            WATCHDOG => Some(Self::Watchdog),
            COMMAND => Some(Self::Command),
            _ => None,
        }
    }

    pub(crate) fn play(self, arguments: impl Iterator<Item = OsString>) -> Status {
        match self {
            Self::Watchdog => watch(arguments),
            Self::Command => become_command(arguments),
        }
    }
}

/// Watches over a command from outside of this process.
pub(crate) struct Watchdog {
    orders: Option<PipeWriter>,
    /// Reaped by the runtime once it is dropped.
    _process: Child,
}

impl Watchdog {
    /// Starts it, with nobody to watch yet.
    pub(crate) fn start(grace: Duration) -> Result<Self, Failure> {
        // Both ends close at exec, so that the command does not keep the pipe open.
        let (reader, writer) = io::pipe()?;
        let process = Command::new(this_program()?)
            .arg(WATCHDOG)
            .arg(grace.as_millis().to_string())
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            // What ends us and the command together must leave it alone.
            .process_group(0)
            .spawn()?;
        Ok(Self {
            orders: Some(writer),
            _process: process,
        })
    }

    /// What starts a command that reports itself first.
    pub(crate) fn command(&self, program: &OsStr, on_terminal: bool) -> Command {
        let orders = self.orders.as_ref().filter(|_| cfg!(target_os = "linux"));
        let Some(orders) = orders else {
            return Command::new(program);
        };
        let orders = format!("/proc/{}/fd/{}", process::id(), orders.as_raw_fd());
        let mut command = Command::new(THIS_PROGRAM);
        command.arg(COMMAND).arg(orders);
        command.arg(if on_terminal { PROCESS } else { GROUP }).arg(program);
        command
    }

    pub(crate) fn watch(&mut self, target: Target) {
        let (kind, pid) = match target {
            Target::Group(pid) => (GROUP, pid),
            Target::Process(pid) => (PROCESS, pid),
        };
        self.order(&order_to_watch(kind, pid));
    }

    /// Tells it that the command has ended by itself, and that its number may soon be another's.
    pub(crate) fn dismiss(&mut self) {
        self.order(DONE);
        self.orders = None;
    }

    fn order(&mut self, order: &str) {
        if let Some(orders) = &mut self.orders {
            // Whoever has killed it has taken this net away; the command goes on.
            let _ = orders.write_all(order.as_bytes());
        }
    }
}

/// The file of this program, also where it was replaced or removed since.
fn this_program() -> io::Result<OsString> {
    if cfg!(target_os = "linux") {
        return Ok(OsString::from(THIS_PROGRAM));
    }
    std::env::current_exe().map(OsString::from)
}

fn order_to_watch(kind: &str, pid: Pid) -> String {
    format!("{kind} {}\n", pid.as_raw_pid())
}

/// Reports this process, and becomes the command.
fn become_command(mut arguments: impl Iterator<Item = OsString>) -> Status {
    let (Some(orders), Some(kind), Some(program)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Status::USAGE;
    };
    let parent = getppid();
    let reported = OpenOptions::new()
        .append(true)
        .open(&orders)
        .and_then(|mut orders| orders.write_all(order_to_watch(&kind.to_string_lossy(), getpid()).as_bytes()));
    // Where the system hides the pipe from us our parent reports us. One that is gone has no lock any more.
    let lives = || {
        parent.is_some_and(|parent| {
            orders
                .to_string_lossy()
                .starts_with(&format!("/proc/{}/", parent.as_raw_pid()))
        })
    };
    if reported.is_err() && !lives() {
        return Status::LOST;
    }
    let error = process::Command::new(&program).args(arguments).exec();
    cannot_run(&program, &error).report()
}

/// Why a command does not run, as a shell has it.
pub(crate) fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let status = match error.kind() {
        io::ErrorKind::NotFound => Status::NOT_FOUND,
        _ => Status::CANNOT_RUN,
    };
    Failure::new(status, format!("{}: {error}", program.to_string_lossy()))
}

/// Is the watchdog.
fn watch(mut arguments: impl Iterator<Item = OsString>) -> Status {
    let grace = arguments
        .next()
        .and_then(|grace| grace.to_str()?.parse().ok())
        .map(Duration::from_millis);
    let mut target = None;
    for order in io::stdin().lock().lines().map_while(Result::ok) {
        match order.split_once(' ') {
            Some((kind, pid)) => target = read(kind, pid),
            None if order == DONE.trim_end() => return Status::SUCCESS,
            None => {}
        }
    }
    if let Some(target) = target {
        end(target, grace.unwrap_or_default());
    }
    Status::SUCCESS
}

fn read(kind: &str, pid: &str) -> Option<Target> {
    // Neither 0 nor 1 nor a negative number, which would mean others.
    let pid = Pid::from_raw(pid.parse().ok().filter(|pid: &i32| *pid > 1)?)?;
    match kind {
        GROUP => Some(Target::Group(pid)),
        PROCESS => Some(Target::Process(pid)),
        _ => None,
    }
}

fn end(target: Target, grace: Duration) {
    let began = Instant::now();
    target.ask_to_end();
    while !target.is_gone() {
        if began.elapsed() >= grace {
            return target.send(Signal::KILL);
        }
        sleep(LOOK_AGAIN);
    }
}

const GROUP: &str = "group";
const PROCESS: &str = "process";
const DONE: &str = "done\n";

const WATCHDOG: &str = "__watchdog";
const COMMAND: &str = "__command";
/// The file of this program on Linux, whatever has become of its name.
const THIS_PROGRAM: &str = "/proc/self/exe";
