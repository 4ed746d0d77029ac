mod once;

use std::{cell::Cell, ffi::OsString, future::Future, pin::Pin, time::Duration};

use clap::Args;
use latchwork_core::{AcquireError, Guard, Key, Locks, Permit, ReleaseError, fence::FencedGuard, slots::MAX_SLOTS};
use latchwork_postgres::{ConnectError, Postgres, checks::ExclusionProbe};
use tokio::time::{Instant, sleep};

use once::OnceArgs;

use crate::{
    args::duration,
    child::{Running, Work},
    connection::ConnectionArgs,
    failure::{Failure, Status},
    name::NameArgs,
    output::news,
    signals::Signals,
};

/// Runs a command while a lock, or a slot, is held
///
/// Waits for the lock without a limit unless it is told otherwise. The command has LATCHWORK_NAME, LATCHWORK_KEY, with
/// --slots LATCHWORK_SLOT and with --fenced LATCHWORK_TERM in its environment, and gets the signals that come to this
/// process.
///
/// When the lock is lost the command gets SIGTERM, after --grace SIGKILL, and the exit status is 74. What the command
/// leaves in the background when it ends is not waited for.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    name: NameArgs,
    /// Ends with 75 at once if others hold the lock
    #[arg(long = "try", conflicts_with = "wait")]
    try_only: bool,
    /// Ends with 75 if others hold the lock for all of this time, such as 30s or 5m. It covers the way to the database too, of
    /// which it is the limit where it is less than connect_timeout (5 s)
    #[arg(long, value_name = "DUR", value_parser = duration)]
    wait: Option<Duration>,
    /// Shares the lock with others who share it
    #[arg(long)]
    shared: bool,
    /// Takes one of N slots instead of a lock: N commands run at once
    #[arg(long, value_name = "N", conflicts_with = "shared", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOTS)))]
    slots: Option<u32>,
    /// Takes the lock fenced, on a connection that is 5 s old, and gives the command its term: a number that grows with
    /// each holder, so that what the command writes to can refuse the last one. So it takes 5 s and more: there is no --try,
    /// and --wait must be longer
    #[arg(long, conflicts_with_all = ["try_only", "slots"])]
    fenced: bool,
    /// Stops the command after this time, with SIGTERM, and after --grace with SIGKILL, and ends with 124, whatever the
    /// command's own status then is
    #[arg(long, value_name = "DUR", value_parser = duration)]
    max_run: Option<Duration>,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    grace: GraceArgs,
    /// Says nothing when others hold the lock
    #[arg(long, short)]
    quiet: bool,
    /// The command, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How long a command may take to end.
#[derive(Clone, Debug, Args)]
pub(crate) struct GraceArgs {
    /// How long the command may take to end after SIGTERM before it gets SIGKILL. After a loss others may hold the lock
    /// meanwhile: 0 kills at once
    #[arg(long, value_name = "DUR", value_parser = duration, default_value = "10s")]
    pub(crate) grace: Duration,
}

impl RunArgs {
    pub(crate) async fn perform(self, connection: &ConnectionArgs) -> Result<Status, Failure> {
        let mut signals = Signals::take()?;
        let recipient = signals.recipient();
        let key = self.name.key()?;
        let tick = self.once.tick()?;
        self.check_wait()?;
        let work = Work {
            command: self.command.clone(),
            grace: self.grace.grace,
        };
        // Who is told to end while the lock is still to be given up has the command's status all the same.
        let over = Cell::new(None);
        let ran = async {
            let begun = Instant::now();
            let locks = self.connect(connection, &work.program()).await?;
            if self.once.is_given() {
                return self.run_once(&locks, key, &tick, &work, &recipient, &over).await;
            }
            let Some(held) = self.acquire(&locks, key, begun).await? else {
                return Ok(self.busy());
            };
            let mut running = work.start(&self.environment(&held), &recipient)?;
            let status = match self.watch(&mut running, held.lost()).await? {
                Watched::Ended(status) => status,
                // The lock is held while it is stopped.
                Watched::Overran => {
                    running.stop().await?;
                    Status::OVERRAN
                }
                Watched::Lost => {
                    running.stop().await?;
                    return Ok(Status::LOST);
                }
                Watched::GivenUp => return Ok(Status::LOST),
            };
            over.set(Some(status));
            held.release().await?;
            Ok(status)
        };
        tokio::select! {
            biased;
            ran = ran => ran.map_err(|failure| self.name.name_failure(failure, key)),
            signal = signals.pass_on() => Ok(over.get().unwrap_or_else(|| Status::of_signal(signal.as_raw()))),
        }
    }

    /// Waits until the command ends, or is to be told to.
    async fn watch(&self, running: &mut Running, lost: impl Future<Output = ()>) -> Result<Watched, Failure> {
        let name = self.name.shown();
        tokio::select! {
            biased;
            status = running.ended() => {
                let status = status?;
                if running.was_given_up() {
                    news(&STOOD_STILL);
                    return Ok(Watched::GivenUp);
                }
                Ok(Watched::Ended(status))
            }
            () = lost => {
                news(&format_args!("the lock {name} was lost; the command is told to end"));
                Ok(Watched::Lost)
            }
            limit = elapsed(self.max_run) => {
                news(&format_args!("the command has run for {limit:?}; it is told to end"));
                Ok(Watched::Overran)
            }
        }
    }

    /// With one connection: it is for each run anew, and `doctor` does what is left out.
    async fn connect(&self, connection: &ConnectionArgs, program: &str) -> Result<Locks, Failure> {
        let config = connection.config()?;
        let options = ConnectionArgs::options(&config, program).with_exclusion_probe(ExclusionProbe::OneSession);
        // A single attempt takes as long as the way to it does.
        let wait = self
            .wait
            .filter(|wait| !wait.is_zero() && *wait < config.connect_timeout());
        let config = match wait {
            Some(wait) => config.with_connect_timeout(wait),
            None => config,
        };
        match Postgres::connect(config, options).await {
            Ok(postgres) => Ok(postgres.locks()),
            Err(ConnectError::TimedOut { server, limit }) if wait.is_some() => Err(Failure::new(
                Status::UNAVAILABLE,
                format!(
                    "connecting to {server} took longer than --wait allows, which is {limit:?}; check the network and the \
                     load of the server, or allow more time"
                ),
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses a wait that has no chance, since a fenced lock needs a connection of some age: it would say nothing of the lock.
    fn check_wait(&self) -> Result<(), Failure> {
        let age = ConnectionArgs::trust();
        match self.wait.filter(|wait| self.fenced && *wait <= age) {
            Some(wait) => Err(Failure::usage(format!(
                "a fenced lock needs a connection that is {age:?} old, so --wait {wait:?} is never enough; give it more than \
                 {age:?}"
            ))),
            None => Ok(()),
        }
    }

    async fn acquire(&self, locks: &Locks, key: Key, begun: Instant) -> Result<Option<Held>, Failure> {
        let limit = if self.try_only { Some(Duration::ZERO) } else { self.wait };
        let limit = limit.map(|limit| {
            // What the way to the database has taken is a part of it. Less than an answer takes would say that others hold what
            // nobody was asked for; zero is a single attempt, which waits for its answer.
            let left = limit.saturating_sub(begun.elapsed());
            if left < ANSWERED_WITHIN { Duration::ZERO } else { left }
        });
        let acquired = if let Some(slots) = self.slots {
            let acquire = locks.slots(key, slots)?.acquire();
            let permit = match limit {
                Some(limit) => acquire.within(limit).await,
                None => acquire.without_limit().await,
            };
            permit.map(Held::Slot)
        } else if self.fenced {
            let mut acquire = locks.acquire_fenced(key);
            if self.shared {
                acquire = acquire.shared();
            }
            let guard = match limit {
                Some(limit) => acquire.within(limit).await,
                None => acquire.without_limit().await,
            };
            guard.map(Held::Fenced)
        } else {
            let mut acquire = locks.acquire(key);
            if self.shared {
                acquire = acquire.shared();
            }
            let guard = match limit {
                Some(limit) => acquire.within(limit).await,
                None => acquire.without_limit().await,
            };
            guard.map(Held::Lock)
        };
        match acquired {
            Ok(held) => Ok(Some(held)),
            Err(AcquireError::TimedOut { .. }) => Ok(None),
            Err(AcquireError::NotReady { .. }) => Err(self.not_ready()),
            Err(error) => Err(error.into()),
        }
    }

    /// Not busy: nobody has been asked.
    fn not_ready(&self) -> Failure {
        let (name, wait) = (self.name.shown(), self.wait.unwrap_or_default());
        let age = ConnectionArgs::trust();
        Failure::new(
            Status::UNAVAILABLE,
            format!(
                "a fenced lock needs a connection that is {age:?} old, and --wait {wait:?} was over before there was one, so \
                 nothing is known of the lock {name} and the command was not run; allow more time"
            ),
        )
    }

    fn busy(&self) -> Status {
        if !self.quiet {
            let what = if self.slots.is_some() {
                "all slots of"
            } else {
                "the lock"
            };
            let name = self.name.shown();
            news(&format_args!("others hold {what} {name}; the command was not run"));
        }
        Status::BUSY
    }

    fn environment(&self, held: &Held) -> Vec<(&'static str, String)> {
        let mut environment = self.name.environment(held.key());
        match held {
            Held::Lock(_) => {}
            Held::Slot(permit) => environment.push(("LATCHWORK_SLOT", permit.slot().to_string())),
            Held::Fenced(guard) => environment.push(("LATCHWORK_TERM", guard.term().to_string())),
        }
        environment
    }
}

/// What has become of a command.
enum Watched {
    Ended(Status),
    /// It has ended, because the watchdog has told it to.
    GivenUp,
    /// It is to be stopped: its lock was lost.
    Lost,
    /// It is to be stopped: it has run for as long as it may.
    Overran,
}

/// What a server takes to answer, with room to spare.
const ANSWERED_WITHIN: Duration = Duration::from_millis(50);

pub(crate) const STOOD_STILL: &str =
    "this process stood still for longer than its lock can be trusted, so its watchdog has told the command to end";

/// What the command runs under.
enum Held {
    Lock(Guard),
    Slot(Permit),
    Fenced(FencedGuard),
}

impl Held {
    fn key(&self) -> Key {
        match self {
            Self::Lock(guard) => guard.key(),
            Self::Slot(permit) => permit.key(),
            Self::Fenced(guard) => guard.key(),
        }
    }

    fn lost(&self) -> Pin<Box<dyn Future<Output = ()>>> {
        match self {
            Self::Lock(guard) => Box::pin(guard.lost()),
            Self::Slot(permit) => Box::pin(permit.lost()),
            Self::Fenced(guard) => Box::pin(guard.lost()),
        }
    }

    async fn release(self) -> Result<(), ReleaseError> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Slot(permit) => permit.release().await,
            Self::Fenced(guard) => guard.release().await,
        }
    }
}

/// Resolves to the limit when it has run out; never without one.
async fn elapsed(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            sleep(limit).await;
            limit
        }
        None => std::future::pending().await,
    }
}
