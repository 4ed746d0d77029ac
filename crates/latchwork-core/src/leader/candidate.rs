use std::{fmt, future::Future, pin::pin, sync::Arc};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Incumbent, LeaderError, LeaderState, Leading, Transitions, inside::work_of, office::Office};
use crate::{
    AcquireError,
    engine::{EngineError, IncumbentRequest},
    key::Key,
    locks::Inner,
};

/// Campaigns for a leadership, in a task of its own, and again after each loss.
///
/// Clones are the same candidate. When the last is dropped it resigns, and campaigns no more.
///
/// # Examples
///
/// ```
/// # use latchwork_core::Locks;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = Locks::in_memory();
/// let candidate = locks.leader("billing").campaign()?;
/// let billed = candidate
///     .run(|leading, cancel| async move {
///         let mut billed = 0;
///         while !cancel.is_cancelled() && billed < 3 {
///             println!("bills in term {}", leading.term());
///             billed += 1;
///         }
///         billed
///     })
///     .await;
/// assert_eq!(billed, Some(3));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Candidate {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<Inner>,
    office: Arc<Office>,
    key: Key,
}

impl Candidate {
    pub(super) fn new(inner: Arc<Inner>, office: Arc<Office>, key: Key) -> Self {
        let shared = Shared { inner, office, key };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The key of the name.
    #[must_use]
    pub fn key(&self) -> Key {
        self.shared.key
    }

    /// Whether this process may believe right now that it leads. Never blocks, and asks nobody.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leading().is_some_and(|leading| leading.is_leader())
    }

    /// The leadership of this moment, in doubt or not; `None` while this process follows.
    #[must_use]
    pub fn leading(&self) -> Option<Leading> {
        self.shared.office.leading()
    }

    /// Where the candidate stands, as its task has seen it last. [`is_leader`](Self::is_leader) is never behind.
    #[must_use]
    pub fn state(&self) -> LeaderState {
        self.shared.office.state()
    }

    /// The latest state, and a way to wait for its change: a receiver of [`tokio::sync::watch`]. States that come quickly one after the other may be skipped.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<LeaderState> {
        self.shared.office.watch()
    }

    /// Each transition from now on, in order. A slow reader holds nobody up.
    #[must_use]
    pub fn transitions(&self) -> Transitions {
        Transitions::of(&self.shared.office)
    }

    /// Why the last campaign has failed, as by a server that can't be reached; `None` once one has come through.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<AcquireError>> {
        self.shared.office.failure()
    }

    /// Runs work while this process leads: again for each time that it is elected, until the work ends by itself, or the
    /// candidate is [shut down](Self::shutdown).
    ///
    /// The work is given its leadership, and a token that is cancelled when that is lost or resigned; it should return
    /// then. It is not dropped. The lock of a leadership that was resigned is kept until the work has returned. Work that
    /// is told to pause while its leadership is in doubt waits for [`Leading::confirmed`] between its steps.
    ///
    /// The candidate's own task is one of the runtime that [`campaign`](super::LeaderBuilder::campaign) was called in. If that
    /// runtime ends, the lock is given up at once, and work elsewhere is cancelled and not waited for.
    ///
    /// Returns the work's value if it returned without having been cancelled, and resigns then; `None` once the
    /// candidate is shut down. A candidate that has returned a value campaigns again after its resign delay: shut it down if
    /// that was all.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work midway, as a `select!` does with whatever loses: to end in order, call
    /// [`shutdown`](Self::shutdown) and go on waiting for this. The process leads on until it resigns or the candidate is
    /// dropped.
    pub async fn run<T, W>(&self, mut work: impl FnMut(Leading, CancellationToken) -> W) -> Option<T>
    where
        W: Future<Output = T>,
    {
        let office = &self.shared.office;
        loop {
            let leading = office.elected().await?;
            let Some((at_work, cancel)) = leading.begin_work() else {
                continue;
            };
            let done = work_of(office, work(leading.clone(), cancel.clone())).await;
            // The work may see a loss before the campaign does.
            let was_cancelled = cancel.is_cancelled() || leading.session().is_lost();
            drop(at_work);
            if !was_cancelled {
                office.resign_from(&leading).await;
                return Some(done);
            }
        }
    }

    /// [Runs](Self::run) work while this process leads, until it returns without having been cancelled, or `stop` resolves;
    /// then [shuts down](Self::shutdown): the work is cancelled, and waited for, and the lock is given up.
    ///
    /// Returns the work's value; `None` if it was told to stop, or the candidate was shut down by others.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// # use latchwork_core::Locks;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let locks = Locks::in_memory();
    /// # let told_to_stop = async {};
    /// let candidate = locks.leader("dispatcher").campaign()?;
    /// candidate
    ///     .run_until(told_to_stop, |leading, cancel| async move {
    ///         println!("leads in term {}", leading.term());
    ///         cancel.cancelled().await;
    ///     })
    ///     .await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_until<T, W>(
        &self,
        stop: impl Future<Output = ()>,
        work: impl FnMut(Leading, CancellationToken) -> W,
    ) -> Option<T>
    where
        W: Future<Output = T>,
    {
        let mut runs = pin!(self.run(work));
        let done = tokio::select! {
            biased;
            done = &mut runs => done,
            () = stop => {
                self.shared.office.close();
                runs.await
            }
        };
        // The work has returned; the lock goes after it.
        self.shutdown().await;
        done
    }

    /// Gives the leadership up, if this process has it, and leaves it to others for
    /// [a while](super::LeaderBuilder::with_resign_delay) before it campaigns again, behind all who wait. To stay away, it
    /// is made [ineligible](Self::set_eligible) instead.
    ///
    /// By the call itself [`is_leader`](Self::is_leader) is false and the work is cancelled. Resolves when the lock is
    /// given up. Awaited inside the work of this candidate it resolves at once, for the lock is kept until that work has
    /// returned: a work that resigns should return then. Another task that the work waits for must not await this.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing back.
    pub fn resign(&self) -> impl Future<Output = ()> + Send + use<> {
        self.shared.office.resign()
    }

    /// Sets whether this process campaigns. One that leads and is not eligible any more resigns. Made eligible again,
    /// it campaigns at once, whatever its resign delay says.
    pub fn set_eligible(&self, eligible: bool) {
        self.shared.office.set_eligible(eligible);
    }

    /// Resigns and campaigns no more. Resolves when the work has returned and the lock is given up; a server that does not
    /// answer is waited for until its session is given up, for 15 s by default.
    ///
    /// By the call itself [`is_leader`](Self::is_leader) is false and the work is cancelled. Inside the work of this
    /// candidate it resolves at once, as [`resign`](Self::resign) does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future takes nothing back.
    pub fn shutdown(&self) -> impl Future<Output = ()> + Send + use<> {
        let office = Arc::clone(&self.shared.office);
        office.close();
        async move { office.closed().await }
    }

    /// Asks the server who leads; `None` if nobody does. Who has no [term](Incumbent::term) yet is about to lead.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// # Errors
    ///
    /// [`LeaderError`] if the server can't be asked. One that does not answer is waited for until its session is given up, for
    /// 15 s by default.
    pub async fn leader(&self) -> Result<Option<Incumbent>, LeaderError> {
        let (request, answer) = IncumbentRequest::new(self.shared.key);
        self.shared.inner.engine.incumbent(request);
        let answer = answer.await.unwrap_or_else(|_| Err(EngineError::connection_lost()));
        answer.map_err(|error| LeaderError::from_engine(&error))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.office.close();
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidate")
            .field("key", &self.key())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
