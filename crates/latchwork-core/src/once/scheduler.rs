mod job;
mod panics;
mod report;
mod worker;

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use job::{Job, Missed};
pub use report::JobReport;

use self::{job::Planned, worker::Worker};
use super::{OnceError, TickClaim, ledger::Ledger};
use crate::{
    Locks, WallClock,
    key::{IntoKey as _, KeyError},
};

/// Runs named jobs by their schedules: in each process, and each tick in one of them.
///
/// Every process of a service makes the same one. Which of them runs a tick is decided by the [ledger](crate::once); a
/// process that stops, or dies, leaves the next tick to the others.
///
/// # Examples
///
/// ```
/// use std::{convert::Infallible, time::Duration};
/// use latchwork_core::{Locks, once::{Job, Missed, Schedule, Scheduler}};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = Locks::in_memory();
/// let quarterly = Schedule::every(Duration::from_secs(900))?;
/// let bills = Job::new("send the bills", &quarterly, |tick| async move {
///     println!("bills until {tick:?}");
///     Ok::<(), Infallible>(())
/// });
/// let scheduler = Scheduler::new(&locks).with_job(bills.with_missed(Missed::RunOnce))?;
/// # let told_to_stop = tokio::time::sleep(Duration::from_millis(10));
/// scheduler.run_until(told_to_stop).await;
/// for report in scheduler.reports().await? {
///     println!("{}: {:?}", report.name, report.last);
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "no job runs before `run_until` is awaited"]
pub struct Scheduler {
    locks: Locks,
    clock: WallClock,
    drain_limit: Option<Duration>,
    jobs: Vec<Arc<Planned>>,
}

/// Why a job was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The name does not make a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There is another job of this name.
    #[error("there are two jobs of the name {name:?}, which would take each other's ticks; rename one")]
    Twice {
        /// The name.
        name: String,
    },
}

impl Scheduler {
    /// A scheduler without jobs.
    pub fn new(locks: &Locks) -> Self {
        Self {
            locks: locks.clone(),
            clock: WallClock::system(),
            drain_limit: None,
            jobs: Vec::new(),
        }
    }

    /// Adds a job.
    ///
    /// # Errors
    ///
    /// [`JobError`] if its name is no key, or another job has it.
    pub fn with_job(mut self, job: Job) -> Result<Self, JobError> {
        let key = job.name.as_str().into_key(self.locks.namespace())?;
        if self.jobs.iter().any(|planned| planned.key == key) {
            return Err(JobError::Twice { name: job.name });
        }
        self.jobs.push(Arc::new(Planned::new(job, key)));
        Ok(self)
    }

    /// Sets the clock that tells which tick is due. Default: the machine's.
    pub fn with_clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    /// Drops the runs that have not ended so long after the shutdown. Default: waits for as long as they take.
    pub const fn with_drain_limit(mut self, drain_limit: Duration) -> Self {
        self.drain_limit = Some(drain_limit);
        self
    }

    /// Runs the jobs until `shutdown` resolves, or the locks are closed; then begins no more runs, and waits for those under
    /// way.
    ///
    /// A job that fails or panics is told of in the log and in the [reports](Self::reports), and runs again at its next tick.
    /// So is a panic of what else is not ours, as of a [clock](Self::with_clock); the job goes on a little later.
    /// While the database is away, each job tries again, less and less often.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the runs under way, and gives up their locks.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub async fn run_until(&self, shutdown: impl Future<Output = ()>) {
        let stop = CancellationToken::new();
        let mut workers = JoinSet::new();
        for job in &self.jobs {
            let worker = Worker::new(self.locks.clone(), self.clock.clone(), Arc::clone(job), stop.clone());
            workers.spawn(worker.run());
        }
        tokio::select! {
            () = shutdown => {}
            () = self.locks.closing() => {}
        }
        info!(target: "latchwork::once", "the scheduler begins no more runs");
        stop.cancel();
        let drained = async { while workers.join_next().await.is_some() {} };
        let Some(limit) = self.drain_limit else {
            return drained.await;
        };
        if timeout(limit, drained).await.is_err() {
            let jobs = workers.len();
            warn!(target: "latchwork::once", jobs, ?limit, "jobs have not ended in time, and are stopped");
            workers.shutdown().await;
        }
    }

    #[cfg(test)]
    pub(super) fn jobs(&self) -> &[Arc<Planned>] {
        &self.jobs
    }

    /// What the ledger tells of each job: when it ran last, by whom, for how long, and how that ended. All processes with
    /// the same jobs are told the same.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Errors
    ///
    /// [`OnceError::Ledger`] if the ledger can't be asked.
    pub async fn reports(&self) -> Result<Vec<JobReport>, OnceError> {
        let ledger = Ledger::new(self.locks.inner());
        let mut reports = Vec::with_capacity(self.jobs.len());
        for planned in &self.jobs {
            reports.push(JobReport {
                name: planned.job.name.clone(),
                last: ledger.last_run(TickClaim::ledger_key(planned.key)).await?,
                next: planned.job.schedule.next_after(self.clock.now()),
                work_error: planned.work_error(),
                failure: planned.failure(),
            });
        }
        Ok(reports)
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("locks", &self.locks)
            .field("drain_limit", &self.drain_limit)
            .field("jobs", &self.jobs)
            .finish_non_exhaustive()
    }
}
