//! The task of one job: waits for its ticks, and runs those that are this process's.

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    job::{Job, Missed, Planned},
    panics::caught,
};
use crate::{
    Locks, WallClock,
    once::{OnceError, Outcome, RunEnd, Skipped, TickAnswer, TickClaim, builder::allowed_ahead, ledger::Ledger},
    pause,
};

pub(super) struct Worker {
    locks: Locks,
    clock: WallClock,
    planned: Arc<Planned>,
    stop: CancellationToken,
}

impl Worker {
    pub(super) const fn new(locks: Locks, clock: WallClock, planned: Arc<Planned>, stop: CancellationToken) -> Self {
        Self {
            locks,
            clock,
            planned,
            stop,
        }
    }

    /// Runs until it is told to stop, or no tick ever comes again, whatever panics meanwhile: a clock, or an error that is
    /// shown.
    pub(super) async fn run(self) {
        let mut failures = 0;
        while caught(self.run_ticks()).await.is_none() {
            failures += 1;
            let key = self.planned.key;
            self.failed(OnceError::Panicked { key }, failures);
            if !self.pauses(failures).await {
                return;
            }
        }
    }

    async fn run_ticks(&self) {
        // The last tick that is seen to.
        let Some(mut last) = self.begin().await else {
            return;
        };
        while let Some(tick) = self.next_tick(last) {
            if !self.comes(tick + self.delay(tick)).await {
                return;
            }
            if self.attend(tick, last).await {
                last = last.max(tick);
            }
            if self.stop.is_cancelled() {
                return;
            }
        }
    }

    fn job(&self) -> &Job {
        &self.planned.job
    }

    /// The tick that missed ones count from; `None` if the worker is stopped before that is known.
    async fn begin(&self) -> Option<SystemTime> {
        if self.job().missed == Missed::Skip {
            return Some(SystemTime::UNIX_EPOCH);
        }
        let mut failures = 0;
        loop {
            match self.enrol().await {
                Ok(Some(last)) => return Some(last),
                // Somebody else is about to enrol it, or has.
                Ok(None) => failures = 0,
                Err(error) => {
                    failures += 1;
                    self.failed(error, failures);
                }
            }
            if !self.pauses(failures.max(1)).await {
                return None;
            }
        }
    }

    /// Reads the last tick that was claimed. A job that was not known yet becomes known.
    async fn enrol(&self) -> Result<Option<SystemTime>, OnceError> {
        let ledger = Ledger::new(self.locks.inner());
        let key = TickClaim::ledger_key(self.planned.key);
        if let Some(run) = ledger.last_run(key).await? {
            return Ok(Some(run.tick));
        }
        let schedule = &self.job().schedule;
        let Some(tick) = schedule.last_at(self.clock.now()) else {
            return Ok(Some(SystemTime::UNIX_EPOCH));
        };
        let allowed = allowed_ahead(schedule, tick);
        let claim = TickClaim::new(self.planned.key, self.job().name.as_str(), tick, allowed).that_enrols();
        match ledger.claim(&claim).await? {
            TickAnswer::Claimed => Ok(Some(tick)),
            TickAnswer::Busy | TickAnswer::Taken => Ok(None),
            TickAnswer::Ahead { by } => {
                let key = self.planned.key;
                Err(OnceError::Ahead { key, by, allowed })
            }
        }
    }

    /// The tick to see to after `last`: one that is due, or the next.
    fn next_tick(&self, last: SystemTime) -> Option<SystemTime> {
        let now = self.clock.now();
        self.due(last, now)
            .or_else(|| self.job().schedule.next_after(last.max(now)))
    }

    /// The tick after `last` that is due now and is not to be skipped.
    fn due(&self, last: SystemTime, now: SystemTime) -> Option<SystemTime> {
        let schedule = &self.job().schedule;
        let latest = || schedule.last_at(now).filter(|tick| *tick > last);
        let reach = match self.job().missed {
            Missed::Skip => {
                let late = MISSED_AFTER + self.job().jitter;
                return latest().filter(|tick| now.duration_since(*tick).is_ok_and(|since| since <= late));
            }
            Missed::RunOnce => 1,
            Missed::RunAll { at_most } => at_most.get(),
        };
        let mut oldest = latest()?;
        for _ in 1..reach {
            let before = oldest.checked_sub(Duration::from_micros(1))?;
            match schedule.last_at(before) {
                Some(tick) if tick > last => oldest = tick,
                _ => break,
            }
        }
        Some(oldest)
    }

    fn delay(&self, tick: SystemTime) -> Duration {
        let interval = self.job().schedule.interval_after(tick).unwrap_or(Duration::MAX);
        self.job().jitter.min(interval).mul_f64(fastrand::f64())
    }

    /// Waits for a moment; false if the worker is stopped before.
    async fn comes(&self, moment: SystemTime) -> bool {
        while let Ok(left) = moment.duration_since(self.clock.now()) {
            if left.is_zero() {
                break;
            }
            // The clock may be set, and timers stand still while the machine is suspended.
            if !self.sleeps(left.min(LOOK_AT_CLOCK)).await {
                return false;
            }
        }
        !self.stop.is_cancelled()
    }

    /// Sees to a tick: it is run here, or was claimed before. False if it is given up, or the worker is stopped.
    async fn attend(&self, tick: SystemTime, last: SystemTime) -> bool {
        // Whoever does not know whether a claim was granted makes the same again.
        let number = fastrand::i64(..);
        let mut failures = 0;
        loop {
            failures += 1;
            match self.try_tick(tick, number).await {
                Ok(Outcome::Ran(()) | Outcome::Skipped(Skipped::Claimed | Skipped::NotDue)) => {
                    self.planned.failed(None);
                    return true;
                }
                Ok(Outcome::Skipped(Skipped::Held)) => {}
                Err(error) => {
                    let has_begun = error.has_begun();
                    if matches!(error, OnceError::Lost(_) | OnceError::Overran { .. }) {
                        // The work was dropped, and has said nothing.
                        self.planned.has_run(None);
                    }
                    self.failed(error, failures);
                    if has_begun {
                        return true;
                    }
                }
            }
            if !self.pauses(failures).await || self.due(last, self.clock.now()) != Some(tick) {
                return false;
            }
        }
    }

    async fn try_tick(&self, tick: SystemTime, number: i64) -> Result<Outcome<()>, OnceError> {
        let job = self.job();
        let once = self.locks.once(job.name.as_str());
        let mut once = once
            .tick(tick, allowed_ahead(&job.schedule, tick))
            .with_claim_number(number);
        if let Some(max_run) = job.max_run {
            once = once.with_max_run(max_run);
        }
        let work = async {
            info!(target: "latchwork::once", job = job.name, "a job begins");
            job.work(tick).await
        };
        // Told here, where it is known whatever becomes of the lock.
        let judge = |done: &Result<(), Arc<dyn Error + Send + Sync>>| {
            self.planned.has_run(done.as_ref().err().cloned());
            match done {
                Ok(()) => RunEnd::Done,
                Err(error) => {
                    let error: &dyn Error = &**error;
                    warn!(target: "latchwork::once", job = job.name, error, "a job has failed");
                    RunEnd::Failed
                }
            }
        };
        Ok(match once.run_and_judge(work, judge).await? {
            Outcome::Ran(_) => Outcome::Ran(()),
            Outcome::Skipped(why) => Outcome::Skipped(why),
        })
    }

    fn failed(&self, error: OnceError, failures: u32) {
        let (job, shown): (_, &dyn Error) = (&self.job().name, &error);
        if error.has_begun() {
            warn!(target: "latchwork::once", job, error = shown, "a run of a job did not end in order");
        } else {
            warn!(target: "latchwork::once", job, failures, error = shown, "a job could not run");
        }
        self.planned.failed(Some(error));
    }

    /// Waits before the next try, with jitter; false if the worker is stopped.
    async fn pauses(&self, failures: u32) -> bool {
        self.sleeps(pause::after_failures(failures)).await
    }

    async fn sleeps(&self, pause: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = sleep(pause) => true,
        }
    }
}

/// How late a run may begin that is not to be made up for.
const MISSED_AFTER: Duration = Duration::from_secs(60);
const LOOK_AT_CLOCK: Duration = Duration::from_secs(10);
