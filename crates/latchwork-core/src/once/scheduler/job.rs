use std::{
    error::Error,
    fmt,
    future::Future,
    num::NonZeroU32,
    pin::Pin,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use super::panics::caught;
use crate::{
    key::Key,
    locks::lock,
    once::{OnceError, Schedule},
};

pub(super) type WorkError = dyn Error + Send + Sync;
type Work = dyn Fn(SystemTime) -> Pin<Box<dyn Future<Output = Result<(), Box<WorkError>>> + Send>> + Send + Sync;

/// A named job with its schedule.
#[must_use = "a job runs in a scheduler"]
pub struct Job {
    pub(super) name: String,
    pub(super) schedule: Schedule,
    pub(super) jitter: Duration,
    pub(super) missed: Missed,
    pub(super) max_run: Option<Duration>,
    work: Box<Work>,
}

/// What becomes of the ticks at which a job could not begin, since no process ran, the database was away, or the last run was
/// still on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Missed {
    /// They are skipped, if the job can't begin within a minute, and before the next tick is due.
    #[default]
    Skip,
    /// The last of them is run as soon as that is possible, instead of all of them.
    RunOnce,
    /// Each of the last `at_most` is run, one after the other.
    RunAll {
        /// How many at most.
        at_most: NonZeroU32,
    },
}

impl Job {
    /// A job that does this work at each tick of a schedule. The work is given the tick: the moment that it was scheduled
    /// for, which may be some time ago.
    pub fn new<F, E>(
        name: impl Into<String>,
        schedule: &Schedule,
        work: impl Fn(SystemTime) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self {
            name: name.into(),
            schedule: schedule.clone(),
            jitter: Duration::ZERO,
            missed: Missed::Skip,
            max_run: None,
            work: Box::new(move |tick| {
                let work = work(tick);
                Box::pin(async move { work.await.map_err(Into::into) })
            }),
        }
    }

    /// Begins each run so much later at most, at random, so that not all jobs of all services begin at once. A run stays
    /// before the next tick. Default: none; at most a day, and what is beyond is taken as that.
    pub fn with_jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter.min(MAX_JITTER);
        self
    }

    /// Sets what becomes of missed ticks. Default: [`Missed::Skip`].
    ///
    /// Of a job that the ledger does not know yet none is missed: they count from the first time that it is scheduled with
    /// another setting than this default.
    pub const fn with_missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Drops a run that is not done within this limit. Default: no limit.
    pub const fn with_max_run(mut self, max_run: Duration) -> Self {
        self.max_run = Some(max_run);
        self
    }

    /// Does the work of one tick. A panic is an error like others.
    pub(super) async fn work(&self, tick: SystemTime) -> Result<(), Arc<WorkError>> {
        let done = caught(async { (self.work)(tick).await }).await;
        let done = done.unwrap_or_else(|| Err(Box::<WorkError>::from("the job has panicked")));
        done.map_err(Arc::from)
    }
}

/// So that a tick and its delay are a moment that there is.
const MAX_JITTER: Duration = Duration::from_secs(86_400);

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("name", &self.name)
            .field("schedule", &self.schedule)
            .field("jitter", &self.jitter)
            .field("missed", &self.missed)
            .field("max_run", &self.max_run)
            .finish_non_exhaustive()
    }
}

/// A job of a scheduler.
#[derive(Debug)]
pub(in crate::once) struct Planned {
    pub(super) job: Job,
    pub(super) key: Key,
    failure: Mutex<Option<Arc<OnceError>>>,
    work_error: Mutex<Option<Arc<WorkError>>>,
}

impl Planned {
    pub(super) const fn new(job: Job, key: Key) -> Self {
        Self {
            job,
            key,
            failure: Mutex::new(None),
            work_error: Mutex::new(None),
        }
    }

    pub(in crate::once) fn failure(&self) -> Option<Arc<OnceError>> {
        lock(&self.failure).clone()
    }

    /// What the work has failed with when it was run here last.
    pub(in crate::once) fn work_error(&self) -> Option<Arc<WorkError>> {
        lock(&self.work_error).clone()
    }

    pub(super) fn has_run(&self, error: Option<Arc<WorkError>>) {
        *lock(&self.work_error) = error;
    }

    pub(super) fn failed(&self, failure: Option<OnceError>) {
        *lock(&self.failure) = failure.map(Arc::new);
    }
}
