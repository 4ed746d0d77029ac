//! One run: the work, the lock that it has, and what is noted of it, however it ends.

use std::{error::Error, fmt, future::pending, time::Duration};

use tokio::{
    runtime::Handle,
    time::{Instant, sleep, sleep_until},
};
use tracing::warn;

use super::{OnceError, RunEnd, TickClaim, ledger::Ledger};
use crate::{Guard, Lost, ReleaseError, key::Key};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) hold_at_least: Duration,
    pub(super) max_run: Option<Duration>,
}

/// A run that has begun, for whoever can't give its work to [`OnceBuilder::run`](super::OnceBuilder::run) as a future that may
/// be dropped: a process that must be told to end first, say. It comes from [`OnceBuilder::begin`](super::OnceBuilder::begin).
///
/// Dropped, it counts as given up, and its lock is released: at once, or when it was held for
/// [long enough](super::OnceBuilder::with_hold_at_least).
#[must_use = "the run is given up when this is dropped"]
pub struct Run {
    guard: Option<Guard>,
    /// Until when the lock is kept.
    kept_until: Option<Instant>,
    max_run: Option<Duration>,
    /// Where the end is to be noted.
    unrecorded: Option<(Ledger, TickClaim)>,
}

impl Run {
    pub(super) fn new(guard: Guard, unrecorded: Option<(Ledger, TickClaim)>, limits: Limits) -> Self {
        let now = Instant::now();
        let kept_until =
            (!limits.hold_at_least.is_zero()).then(|| now.checked_add(limits.hold_at_least).unwrap_or(now + LONG));
        Self {
            guard: Some(guard),
            kept_until,
            max_run: limits.max_run,
            unrecorded,
        }
    }

    /// The key of its lock.
    #[must_use]
    pub fn key(&self) -> Key {
        self.guard().key()
    }

    /// Resolves when the lock was lost; never otherwise. The work should stop then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.guard().lost()
    }

    /// Notes how the run has ended, while the lock is still held: what [`end`](Self::end) is told after that counts for
    /// nothing, and neither does a drop.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the end is on its way to the ledger.
    pub async fn note(&mut self, end: RunEnd) {
        if let Some((ledger, claim)) = self.unrecorded.take()
            && let Err(error) = ledger.record(&claim, end).await
        {
            let error: &dyn Error = &error;
            warn!(target: "latchwork::once", key = %claim.key(), error, "the end of a run was not noted");
        }
    }

    /// Notes how the run has ended, and gives the lock up: at once, or when it was held for
    /// [long enough](super::OnceBuilder::with_hold_at_least). Resolves when that is done.
    ///
    /// A ledger that can't be reached is only told of in the log: the lock is what others wait for.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the end is on its way to the ledger. Dropping the future gives the lock up as dropping the run does.
    ///
    /// # Errors
    ///
    /// [`ReleaseError`] if the lock was not held to the end, so that others may have run meanwhile.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, if the lock is to be held for long enough.
    pub async fn end(mut self, end: RunEnd) -> Result<(), ReleaseError> {
        self.note(end).await;
        if let Some(until) = self.kept_until {
            tokio::select! {
                () = self.lost() => {}
                () = sleep_until(until) => {}
            }
        }
        self.release().await
    }

    fn guard(&self) -> &Guard {
        self.guard.as_ref().expect("it is there until the run has ended")
    }

    /// Runs the work to its end, or drops it.
    pub(super) async fn work<F: Future>(
        self,
        work: F,
        judge: impl FnOnce(&F::Output) -> RunEnd,
    ) -> Result<F::Output, OnceError> {
        let (key, lost) = (self.key(), self.lost());
        let ended = tokio::select! {
            biased;
            () = lost => Err(OnceError::Lost(Lost::new(key))),
            value = work => Ok(value),
            limit = overrun(self.max_run) => Err(OnceError::Overran { key, limit }),
        };
        match &ended {
            Ok(value) => self.leave(judge(value)).await.map_err(OnceError::Release)?,
            Err(OnceError::Lost(_)) => {
                warn!(target: "latchwork::once", %key, "a job was stopped: its lock was lost");
                self.end_lost();
            }
            Err(_) => {
                warn!(target: "latchwork::once", %key, limit = ?self.max_run, "a job was stopped: it was not done in time");
                if let Err(error) = self.leave(RunEnd::Overran).await {
                    tell(&error);
                }
            }
        }
        ended
    }

    /// As [`end`](Self::end), where nobody waits for as long as the lock is kept.
    async fn leave(mut self, end: RunEnd) -> Result<(), ReleaseError> {
        self.note(end).await;
        if self.is_kept() {
            return Ok(());
        }
        self.release().await
    }

    async fn release(mut self) -> Result<(), ReleaseError> {
        match self.guard.take() {
            Some(guard) => guard.release().await,
            None => Ok(()),
        }
    }

    /// Nobody is kept waiting for a database that may be away.
    fn end_lost(mut self) {
        self.record(RunEnd::Lost);
        drop(self.guard.take());
    }

    fn record(&mut self, end: RunEnd) {
        if let Some((ledger, claim)) = self.unrecorded.take() {
            // It is on its way.
            drop(ledger.record(&claim, end));
        }
    }

    fn is_kept(&self) -> bool {
        self.kept_until.is_some_and(|until| Instant::now() < until)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("guard", &self.guard)
            .field("max_run", &self.max_run)
            .finish_non_exhaustive()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.record(RunEnd::Dropped);
        let (Some(guard), Some(until), true) = (self.guard.take(), self.kept_until, self.is_kept()) else {
            return;
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(keep(guard, until));
        }
    }
}

/// Keeps the lock, for as long as there is something to keep.
async fn keep(guard: Guard, until: Instant) {
    tokio::select! {
        () = guard.lost() => {}
        () = sleep_until(until) => {}
    }
    if let Err(error) = guard.release().await {
        tell(&error);
    }
}

/// Resolves to the limit when it has run out.
async fn overrun(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            sleep(limit).await;
            limit
        }
        None => pending().await,
    }
}

fn tell(error: &ReleaseError) {
    let error: &dyn Error = error;
    warn!(target: "latchwork::once", error, "the lock of a job was not held to the end");
}

/// As good as for ever.
const LONG: Duration = Duration::from_secs(100 * 365 * 86_400);
