//! A run that others are kept out of for longer than it takes.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use latchwork_core::{
    Key, Locks,
    once::{OnceBuilder, OnceError, Outcome, Schedule, ScheduleError, Skipped},
};
use tokio::sync::Mutex;

use super::{RunArgs, elapsed};
use crate::{
    args::duration,
    child::{Running, Target, Work},
    failure::{Failure, Status},
};

/// How a command is run once, though several machines come to run it.
#[derive(Clone, Debug, Args)]
pub(super) struct OnceArgs {
    /// Runs once for each tick of a cron expression such as "0 3 * * *", on whichever machine comes first, or, with `now`, once
    /// for the minute of this machine's clock. Others end with 75. Needs the tables of `latchwork schema`
    #[arg(long, value_name = "CRON|now", conflicts_with_all = ["wait", "shared", "slots", "fenced"])]
    tick: Option<String>,
    /// The time zone of the cron expression
    #[arg(long, value_name = "ZONE", default_value = "UTC", requires = "tick")]
    time_zone: String,
    /// Keeps the lock for at least so long, although the command may end sooner: for machines whose clocks differ
    #[arg(long, value_name = "DUR", value_parser = duration, conflicts_with_all = ["wait", "shared", "slots", "fenced"])]
    hold_at_least: Option<Duration>,
}

impl OnceArgs {
    pub(super) const fn is_given(&self) -> bool {
        self.tick.is_some() || self.hold_at_least.is_some()
    }

    /// Which tick the command is run for. Asked before the way to the database, which may take until the next minute.
    pub(super) fn tick(&self) -> Result<Tick, ScheduleError> {
        Ok(match self.tick.as_deref() {
            None => Tick::None,
            Some("now") => Tick::At(this_minute(SystemTime::now())),
            Some(expression) => Tick::On(Schedule::cron(expression, &self.time_zone)?),
        })
    }
}

/// Which tick a command is run for.
pub(super) enum Tick {
    None,
    At(SystemTime),
    On(Schedule),
}

impl Tick {
    fn apply(&self, once: OnceBuilder) -> OnceBuilder {
        match self {
            Self::None => once,
            Self::At(minute) => once.tick(*minute, MINUTE),
            Self::On(schedule) => once.on(schedule),
        }
    }
}

impl RunArgs {
    /// Runs the command if nobody else does or has, and waits until the lock is given up.
    pub(super) async fn run_once(
        &self,
        locks: &Locks,
        key: Key,
        tick: &Tick,
        work: &Work,
        target: &Rc<Cell<Option<Target>>>,
    ) -> Result<Status, Failure> {
        let once = tick.apply(self.name.once(locks, key)?);
        let once = once.with_hold_at_least(self.once_args.hold_at_least.unwrap_or_default());
        // Outside of what is dropped when the lock is lost.
        let started: Mutex<Option<Running>> = Mutex::new(None);
        let command = async {
            let mut started = started.lock().await;
            let running = started.insert(work.start(&self.name.environment(key), target)?);
            let limit = tokio::select! {
                biased;
                status = running.ended() => return status,
                limit = elapsed(self.max_run) => limit,
            };
            eprintln!("latchwork: the command has run for {limit:?}; it is told to end");
            let running = started.take().expect("it was started");
            running.stop().await
        };
        let status = match once.run(command).await {
            Ok(Outcome::Ran(status)) => status?,
            Ok(Outcome::Skipped(skipped)) => return Ok(self.skipped(skipped)),
            Err(OnceError::Lost(_)) => {
                eprintln!(
                    "latchwork: the lock {} was lost; the command is told to end",
                    self.name.shown()
                );
                if let Some(running) = started.into_inner() {
                    running.stop().await?;
                }
                return Ok(Status::LOST);
            }
            Err(error) => return Err(error.into()),
        };
        locks.close().await;
        Ok(status)
    }

    fn skipped(&self, skipped: Skipped) -> Status {
        if !self.quiet {
            eprintln!(
                "latchwork: {}, so the command was not run: {skipped}",
                self.name.shown()
            );
        }
        Status::BUSY
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// The beginning of the minute, which is what cron runs a line for.
fn this_minute(now: SystemTime) -> SystemTime {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    UNIX_EPOCH + Duration::from_secs(seconds - seconds % 60)
}
