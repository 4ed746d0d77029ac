//! The process that ends a command whose `latchwork` is gone.
//!
//! When `latchwork` is killed its connection closes, so its lock goes to the next at once, and nobody is left who could
//! stop the command. A small process of its own sees that, by the end of a pipe that `latchwork` alone has the other end
//! of. A parent-death signal would not reach what the command has started.
//!
//! A `latchwork` that stands still (`kill -STOP`, a debugger) can't stop the command either, and the server gives its session
//! up. So it sends a beat through the pipe now and then, and where none has come for as long as a session is trusted, the
//! watchdog ends the command too. One that stood still itself has heard nothing for that reason, and waits anew.
//!
//! The command must not run before the watchdog knows of it. So what is started is this program once more, which reports
//! itself to the watchdog and then becomes the command. Where there is no `/proc` to report through, `latchwork` reports
//! the command when it has started it, and a `kill -9` within that moment leaves it running.

use std::{
    ffi::{OsStr, OsString},
    fs::OpenOptions,
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::process::CommandExt as _,
    },
    process::{self, Stdio},
    sync::{Arc, Weak},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, ioctl_fionbio, ioctl_fionread},
    process::{Signal, getpid, getppid},
};
use tokio::{
    process::{Child, Command},
    time::{MissedTickBehavior, interval},
};

use crate::{
    child::Target,
    connection::ConnectionArgs,
    failure::{Failure, Status},
    tree::{MARK, Mark},
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
    orders: Option<Arc<PipeWriter>>,
    /// Says when it ends the command.
    acts: PipeReader,
    /// Reaped by the runtime once it is dropped.
    _process: Child,
}

impl Watchdog {
    /// Starts it, with nobody to watch yet.
    pub(crate) fn start(grace: Duration) -> Result<Self, Failure> {
        // All ends close at exec, so that the command does not keep a pipe open.
        let (reader, orders) = io::pipe()?;
        let (acts, writer) = io::pipe()?;
        // A watchdog that was stopped must not hold us up, nor one that has nothing to say.
        ioctl_fionbio(&orders, true).map_err(io::Error::from)?;
        ioctl_fionbio(&acts, true).map_err(io::Error::from)?;
        let limit = ConnectionArgs::trust();
        let process = Command::new(this_program()?)
            .arg(WATCHDOG)
            .arg(grace.as_millis().to_string())
            .arg(limit.as_millis().to_string())
            .stdin(reader)
            .stdout(writer)
            .stderr(Stdio::null())
            .current_dir("/")
            .env(MARK, Mark::WATCHDOG.to_string())
            // What ends us and the command together must leave it alone.
            .process_group(0)
            .spawn()?;
        let orders = Arc::new(orders);
        tokio::spawn(beat(Arc::downgrade(&orders), limit / BEATS_IN_LIMIT));
        Ok(Self {
            orders: Some(orders),
            acts,
            _process: process,
        })
    }

    /// What starts a command that reports itself first.
    pub(crate) fn command(&self, program: &OsStr, mark: Option<Mark>) -> Command {
        let orders = self.orders.as_ref().filter(|_| cfg!(target_os = "linux"));
        let Some(orders) = orders else {
            return Command::new(program);
        };
        let orders = format!("/proc/{}/fd/{}", process::id(), orders.as_raw_fd());
        let mut command = Command::new(THIS_PROGRAM);
        let mark = mark.map_or_else(String::new, |mark| mark.to_string());
        command.arg(COMMAND).arg(orders).arg(mark).arg(program);
        command
    }

    pub(crate) fn watch(&self, target: Target) {
        self.order(&order_to_watch(target));
    }

    /// Tells it that the command has ended by itself, and that its number may soon be another's.
    pub(crate) fn dismiss(&mut self) {
        self.order(DONE);
        self.orders = None;
    }

    /// Whether it has told the command to end.
    pub(crate) fn has_acted(&self) -> bool {
        (&self.acts).read(&mut [0]).is_ok_and(|read| read > 0)
    }

    fn order(&self, order: &str) {
        if let Some(orders) = &self.orders {
            // Whoever has killed it has taken this net away; the command goes on.
            let _ = (&**orders).write_all(order.as_bytes());
        }
    }
}

/// Shows the watchdog that this process runs, for as long as there is a pipe to it.
async fn beat(orders: Weak<PipeWriter>, every: Duration) {
    let mut beats = interval(every);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        let Some(orders) = orders.upgrade() else {
            return;
        };
        // To a watchdog that was stopped no more than it needs, so that there is room for the word that all is done.
        if ioctl_fionread(&*orders).is_ok_and(|unread| unread < UNREAD) {
            let _ = (&*orders).write_all(BEAT.as_bytes());
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

fn order_to_watch(target: Target) -> String {
    format!("{target}\n")
}

/// Reports this process, and becomes the command.
fn become_command(mut arguments: impl Iterator<Item = OsString>) -> Status {
    let (Some(orders), Some(mark), Some(program)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Status::USAGE;
    };
    let target = Target::of(getpid(), mark.to_str().and_then(|mark| mark.parse().ok()));
    let reported = OpenOptions::new()
        .append(true)
        .open(&orders)
        .and_then(|mut orders| orders.write_all(order_to_watch(target).as_bytes()));
    if let Err(error) = reported
        && is_left_alone(&orders, &error)
    {
        return Status::LOST;
    }
    let error = process::Command::new(&program).args(arguments).exec();
    cannot_run(&program, &error).report()
}

/// Whether a report has failed since our parent is gone, and its lock with it. Where the system hides the pipe from us our
/// parent reports us.
fn is_left_alone(orders: &OsStr, error: &io::Error) -> bool {
    match error.kind() {
        // The files of a process that is killed are closed before it ceases to be our parent.
        io::ErrorKind::NotFound => return true,
        io::ErrorKind::BrokenPipe => return false,
        _ => {}
    }
    let orders = orders.to_string_lossy();
    let has_parent = || getppid().is_some_and(|parent| orders.starts_with(&format!("/proc/{}/", parent.as_raw_pid())));
    for _ in 0..LOOKS_FOR_PARENT {
        if !has_parent() {
            return true;
        }
        sleep(Duration::from_millis(1));
    }
    false
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
fn watch(arguments: impl Iterator<Item = OsString>) -> Status {
    let times: Vec<Duration> = arguments
        .filter_map(|time| time.to_str()?.parse().ok())
        .map(Duration::from_millis)
        .collect();
    let [grace, limit] = times[..] else {
        return Status::USAGE;
    };
    let look = limit / LOOKS_IN_LIMIT;
    let (mut orders, mut target, mut heard) = (Orders::default(), None, Instant::now());
    loop {
        let began = Instant::now();
        match orders.next(look) {
            Heard::Nothing => {}
            Heard::Order(order) if order == DONE.trim_end() => return Status::SUCCESS,
            Heard::Order(order) => {
                heard = Instant::now();
                target = Target::read(&order).or(target);
            }
            Heard::End => break,
        }
        // We stood still: so may those who were to be heard have, and they get their time to be.
        if began.elapsed() > look * 2 {
            heard = Instant::now();
        }
        if target.is_some() && heard.elapsed() >= limit {
            let _ = io::stdout().write_all(b"!");
            let _ = io::stdout().flush();
            break;
        }
    }
    if let Some(target) = target {
        end(target, grace);
    }
    Status::SUCCESS
}

/// What comes through the pipe, a line each.
#[derive(Default)]
struct Orders {
    unread: Vec<u8>,
}

enum Heard {
    Order(String),
    Nothing,
    /// Nobody has the other end any more.
    End,
}

impl Orders {
    fn next(&mut self, limit: Duration) -> Heard {
        if let Some(order) = self.line() {
            return Heard::Order(order);
        }
        let stdin = io::stdin();
        let limit = Timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(1),
            tv_nsec: limit.subsec_nanos().into(),
        };
        match poll(
            &mut [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)],
            Some(&limit),
        ) {
            Ok(0) | Err(Errno::INTR) => return Heard::Nothing,
            Ok(_) => {}
            Err(_) => return Heard::End,
        }
        let mut read = [0; 512];
        match rustix::io::read(stdin.as_fd(), &mut read) {
            Ok(0) => Heard::End,
            Ok(count) => {
                self.unread.extend(&read[..count]);
                self.line().map_or(Heard::Nothing, Heard::Order)
            }
            Err(Errno::INTR) => Heard::Nothing,
            Err(_) => Heard::End,
        }
    }

    fn line(&mut self) -> Option<String> {
        let end = self.unread.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.unread.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }
}

fn end(target: Target, grace: Duration) {
    let began = Instant::now();
    target.ask_to_end();
    while !target.is_gone() {
        if began.elapsed() >= grace {
            return target.send(Signal::KILL);
        }
        sleep(target.look_again());
    }
}

const DONE: &str = "done\n";
const BEAT: &str = "beat\n";
/// How many bytes the watchdog may have left to read, far less than what fits into a pipe.
const UNREAD: u64 = 1024;
const BEATS_IN_LIMIT: u32 = 5;
const LOOKS_IN_LIMIT: u32 = 10;
/// So many milliseconds, within which a process that is killed is gone altogether.
const LOOKS_FOR_PARENT: u32 = 50;

const WATCHDOG: &str = "__watchdog";
const COMMAND: &str = "__command";
/// The file of this program on Linux, whatever has become of its name.
const THIS_PROGRAM: &str = "/proc/self/exe";
