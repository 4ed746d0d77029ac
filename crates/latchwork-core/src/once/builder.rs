use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tracing::debug;

use super::{
    LastRun, OnceError, Outcome, RunEnd, Schedule, Skipped, TickAnswer, TickClaim,
    ledger::Ledger,
    run::{Limits, Run},
};
use crate::{
    WallClock,
    acquire::TryAcquire,
    key::{Key, KeyError},
    locks::{Inner, ShardHandle},
};

/// Collects how work is done once. Nothing happens before [`run`](Self::run) is awaited.
#[must_use = "nothing is run before `run` is awaited"]
pub struct OnceBuilder {
    inner: Arc<Inner>,
    at: Result<(Arc<ShardHandle>, Key), KeyError>,
    name: String,
    limits: Limits,
    tick: Tick,
    clock: WallClock,
    claim_number: Option<i64>,
}

#[derive(Debug)]
enum Tick {
    /// The lock alone.
    None,
    At {
        tick: SystemTime,
        allowed: Duration,
    },
    On(Schedule),
}

impl OnceBuilder {
    pub(crate) fn new(inner: Arc<Inner>, at: Result<(Arc<ShardHandle>, Key), KeyError>, name: String) -> Self {
        Self {
            inner,
            at,
            name,
            limits: Limits::default(),
            tick: Tick::None,
            clock: WallClock::system(),
            claim_number: None,
        }
    }

    /// Keeps the lock for so long from the beginning of a run, although the work may be done sooner: whoever comes meanwhile
    /// is told that others are at it. The work's value is returned at once, and the lock is kept by a task. Default: not.
    ///
    /// [`Locks::close`](crate::Locks::close) waits for it. Outside of a Tokio runtime, and when the runtime ends, the lock is
    /// given up sooner.
    pub fn with_hold_at_least(mut self, hold_at_least: Duration) -> Self {
        self.limits.hold_at_least = hold_at_least;
        self
    }

    /// Drops the work if it is not done within this limit, and gives the lock up then. Default: no limit.
    ///
    /// Work that blocks its thread is not stopped by that.
    pub fn with_max_run(mut self, max_run: Duration) -> Self {
        self.limits.max_run = Some(max_run);
        self
    }

    /// Runs for the tick that was scheduled for `at`, if that was not claimed yet, nor a later one.
    ///
    /// A tick that lies more than `interval` ahead of the database's clock is refused with [`OnceError::Ahead`]: else a node
    /// whose clock is set to 2030 would stop the job until then.
    pub fn tick(mut self, at: SystemTime, interval: Duration) -> Self {
        self.tick = Tick::At {
            tick: at,
            allowed: interval,
        };
        self
    }

    /// Runs for the tick of the schedule that is due now. As [`tick`](Self::tick), where a tick may lie ahead of the
    /// database's clock by the interval to the next one, and by an hour at most.
    pub fn on(mut self, schedule: &Schedule) -> Self {
        self.tick = Tick::On(schedule.clone());
        self
    }

    /// Sets the clock that tells which tick is due. Default: the machine's.
    pub fn with_clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    /// Has a run make the claim of this number, which it may have made before.
    pub(super) fn with_claim_number(mut self, number: i64) -> Self {
        self.claim_number = Some(number);
        self
    }

    /// Runs the work if the lock is free, and, with a tick, if that was not claimed before.
    ///
    /// The order is: try the lock, claim the tick, run the work, note the end, give the lock up. With a tick the work runs at
    /// most once: a process that dies midway has taken the tick with it.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the work has begun, nothing stays held; a tick that was just being claimed may be claimed, though
    /// nobody runs it. Dropped later, the work is dropped, and the lock is given up: at once, or when it was held for
    /// [long enough](Self::with_hold_at_least).
    ///
    /// # Errors
    ///
    /// [`OnceError`]. That others do the work is not an error but [`Outcome::Skipped`]. Where the work was done and its lock
    /// turns out to be lost when it is given up, that is [`OnceError::Release`], as [`Guard::release`](crate::Guard::release)
    /// tells it, and the value is dropped; of a lock that is [kept](Self::with_hold_at_least) beyond the work it is logged.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use latchwork_core::{Locks, once::{Outcome, Skipped}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = Locks::in_memory();
    /// let warm_up = || locks.once("warm the cache").with_hold_at_least(Duration::from_secs(60));
    /// assert_eq!(warm_up().run(async { "warm" }).await?, Outcome::Ran("warm"));
    /// assert_eq!(warm_up().run(async { "warm" }).await?, Outcome::Skipped(Skipped::Held));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(self, work: F) -> Result<Outcome<F::Output>, OnceError> {
        self.run_and_judge(work, |_| RunEnd::Done).await
    }

    /// As [`run`](Self::run), where the value says how the run has ended.
    pub(super) async fn run_and_judge<F: Future>(
        self,
        work: F,
        judge: impl FnOnce(&F::Output) -> RunEnd,
    ) -> Result<Outcome<F::Output>, OnceError> {
        match self.begin().await? {
            Outcome::Ran(run) => run.work(work, judge).await.map(Outcome::Ran),
            Outcome::Skipped(skipped) => Ok(Outcome::Skipped(skipped)),
        }
    }

    /// As [`run`](Self::run), up to the moment at which the work begins: whoever calls this sees to the work, stops it when
    /// the lock is [lost](Run::lost), and [ends](Run::end) the run with what is to be noted of it. The
    /// [limit](Self::with_max_run) is the caller's affair too.
    ///
    /// # Cancel safety
    ///
    /// Nothing stays held; a tick that was just being claimed may be claimed, though nobody runs it.
    ///
    /// # Errors
    ///
    /// [`OnceError`]. That others do the work is not an error but [`Outcome::Skipped`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use latchwork_core::{Locks, once::{Outcome, RunEnd}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = Locks::in_memory();
    /// if let Outcome::Ran(run) = locks.once("back up").begin().await? {
    ///     let copied = 17;
    ///     run.end(if copied > 0 { RunEnd::Done } else { RunEnd::Failed }).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn begin(self) -> Result<Outcome<Run>, OnceError> {
        let claim = match (self.make_claim()?, &self.tick) {
            (None, Tick::At { .. } | Tick::On(_)) => return Ok(Outcome::Skipped(Skipped::NotDue)),
            (claim, _) => claim.map(|claim| claim.for_run(self.claim_number)),
        };
        let (gate, key) = self.at?;
        let Some(guard) = TryAcquire::new(Ok((gate, key))).await? else {
            debug!(target: "latchwork::once", %key, "skipped: others are at it");
            return Ok(Outcome::Skipped(Skipped::Held));
        };
        let ledger = Ledger::new(self.inner);
        if let Some(claim) = &claim {
            let skipped = match ledger.claim(claim).await? {
                TickAnswer::Claimed => None,
                TickAnswer::Busy => Some(Skipped::Held),
                TickAnswer::Taken => Some(Skipped::Claimed),
                TickAnswer::Ahead { by } => {
                    let allowed = claim.allowed;
                    return Err(OnceError::Ahead { key, by, allowed });
                }
            };
            if let Some(skipped) = skipped {
                debug!(target: "latchwork::once", %key, "skipped: {skipped}");
                // Whoever comes next is told of the tick, and not that we are at it.
                let _ = guard.release().await;
                return Ok(Outcome::Skipped(skipped));
            }
        }
        let unrecorded = claim.map(|claim| (ledger, claim));
        Ok(Outcome::Ran(Run::new(guard, unrecorded, self.limits)))
    }

    /// The claim on the tick that is due, to be made in the work's own transaction: then the work runs exactly once, as far
    /// as it is in that transaction. `None` if no tick was set or none is due.
    ///
    /// It takes no lock. See [`TickClaim`] for how it is sent.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if the name does not make a key.
    pub fn claim(&self) -> Result<Option<TickClaim>, KeyError> {
        self.make_claim()
    }

    fn make_claim(&self) -> Result<Option<TickClaim>, KeyError> {
        let key = self.key()?;
        let (tick, allowed) = match &self.tick {
            Tick::None => return Ok(None),
            Tick::At { tick, allowed } => (*tick, *allowed),
            Tick::On(schedule) => {
                let Some(tick) = schedule.last_at(self.clock.now()) else {
                    return Ok(None);
                };
                (tick, allowed_ahead(schedule, tick))
            }
        };
        Ok(Some(TickClaim::new(key, self.name.as_str(), tick, allowed)))
    }

    /// The last run of the job with a tick, on whichever node; `None` if there was none yet.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Errors
    ///
    /// [`OnceError::Ledger`] if the ledger can't be asked.
    pub async fn last_run(&self) -> Result<Option<LastRun>, OnceError> {
        let key = TickClaim::ledger_key(self.key()?);
        Ok(Ledger::new(Arc::clone(&self.inner)).last_run(key).await?)
    }

    fn key(&self) -> Result<Key, KeyError> {
        self.at.as_ref().map(|(_, key)| *key).map_err(Clone::clone)
    }
}

/// How far a tick of a schedule may lie ahead of the database's clock.
pub(super) fn allowed_ahead(schedule: &Schedule, tick: SystemTime) -> Duration {
    schedule.interval_after(tick).unwrap_or(MAX_AHEAD).min(MAX_AHEAD)
}

/// A node whose clock is further ahead is wrong, however seldom the job is due.
const MAX_AHEAD: Duration = Duration::from_secs(3_600);

impl fmt::Debug for OnceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceBuilder")
            .field("key", &self.key())
            .field("limits", &self.limits)
            .field("tick", &self.tick)
            .finish_non_exhaustive()
    }
}
