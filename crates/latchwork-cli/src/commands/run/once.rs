//! A run that others are kept out of for longer than it takes.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use latchwork_core::{
    Key, Locks,
    once::{OnceBuilder, Outcome, RunEnd, Schedule, ScheduleError, Skipped},
};
use tokio::time::timeout;

use super::{RunArgs, Watched};
use crate::{
    args::duration,
    child::Work,
    failure::{Failure, Status},
    output::news,
    signals::Recipient,
};

/// How a command is run once, though several machines come to run it.
#[derive(Clone, Debug, Args)]
pub(super) struct OnceArgs {
    /// Runs once for each tick of a cron expression such as "0 3 * * *", on whichever machine comes first, or, with `now`, once
    /// for the minute of this machine's clock. The tick is the last one that was due, however long ago: the first run of a name
    /// that has never run begins at once. Others end with 75, also if the command has failed or could not be started. The lock is
    /// asked for once, as with --try. Needs the tables of `latchwork schema`
    #[arg(long, value_name = "CRON|now", conflicts_with_all = ["wait", "shared", "slots", "fenced"])]
    tick: Option<String>,
    /// The time zone of the cron expression
    #[arg(long, value_name = "ZONE", default_value = "UTC", requires = "tick")]
    time_zone: String,
    /// Keeps the lock for at least so long, although the command may end sooner: for machines whose clocks differ. The lock is
    /// asked for once, as with --try: there is no --wait
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
        signals: &Rc<Recipient>,
        over: &Cell<Option<Status>>,
    ) -> Result<Status, Failure> {
        let once = tick.apply(self.name.once(locks, key)?);
        let once = once.with_hold_at_least(self.once.hold_at_least.unwrap_or_default());
        let mut run = match once.begin().await? {
            Outcome::Ran(run) => run,
            Outcome::Skipped(skipped) => return Ok(self.skipped(skipped)),
        };
        let mut running = match work.start(&self.name.environment(key), signals) {
            Ok(running) => running,
            Err(failure) => {
                // The lock is not kept for a command that has not run: another machine may have it.
                run.note(RunEnd::Failed).await;
                return Err(failure);
            }
        };
        let (end, status) = match self.watch(&mut running, run.lost()).await? {
            Watched::Ended(status) if status == Status::SUCCESS => (RunEnd::Done, status),
            Watched::Ended(status) => (RunEnd::Failed, status),
            // The lock is held while it is stopped.
            Watched::Overran => {
                running.stop().await?;
                (RunEnd::Overran, Status::OVERRAN)
            }
            lost => {
                // Meanwhile, and not waited for for long: the database may be away.
                let noted = timeout(NOTED_WITHIN, run.end(RunEnd::Lost));
                let stop = async {
                    match lost {
                        Watched::Lost => running.stop().await.map(drop),
                        _ => Ok(()),
                    }
                };
                let (_, stopped) = tokio::join!(noted, stop);
                stopped?;
                return Ok(Status::LOST);
            }
        };
        over.set(Some(status));
        run.end(end).await?;
        Ok(status)
    }

    fn skipped(&self, skipped: Skipped) -> Status {
        if skipped == Skipped::Held {
            return self.busy();
        }
        if !self.quiet {
            let (name, not_run) = (self.name.shown(), "the command was not run");
            match skipped {
                Skipped::Claimed => news(&format_args!("{name} has run for this tick, or a later one; {not_run}")),
                Skipped::NotDue => news(&format_args!("no tick of {name} is due; {not_run}")),
                skipped => news(&format_args!("{name}: {skipped}; {not_run}")),
            }
        }
        Status::BUSY
    }
}

const MINUTE: Duration = Duration::from_secs(60);
/// How long it may take to note that a lock was lost.
const NOTED_WITHIN: Duration = Duration::from_secs(2);

/// The beginning of the minute, which is what cron runs a line for.
fn this_minute(now: SystemTime) -> SystemTime {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    UNIX_EPOCH + Duration::from_secs(seconds - seconds % 60)
}
