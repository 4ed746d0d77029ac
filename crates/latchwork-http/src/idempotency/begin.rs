use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::Response;
use latchwork_core::{AcquireError, Guard, Locks, Mode};
use tokio::{runtime::Handle, spawn, sync::oneshot, time::timeout};
use tracing::{Instrument, warn};

use super::{
    digest::{Fingerprint, RecordId},
    policy::Terms,
    run::{IdempotentRun, Work},
    sql::{self, Found, Kept},
};
use crate::{
    Rejection, RejectionKind,
    tx::{OpenTx, TxAttempt, TxError, TxProvider, TxRequest, in_task},
};

/// What is to be done for a request.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "an adapter must handle all there are")]
pub enum Begun<P: TxProvider> {
    /// It was carried out before: this is its response.
    Replay(Response<Bytes>),
    /// It is to be carried out now.
    Run(IdempotentRun<P>),
}

/// Claims a request's key, or finds the response that is kept for it.
///
/// # Cancel safety
///
/// The future may be dropped at any time. Nothing stays claimed, but for a handler that works outside of the database:
/// there a claim that was being stored is taken back, and may stay if the database ends in between; it says then that
/// nobody knows how the request ended.
///
/// # Errors
///
/// The [`Rejection`] to answer with.
#[must_use = "futures do nothing unless awaited"]
pub struct Begin<P: TxProvider>(Pin<Box<dyn Future<Output = Result<Begun<P>, Rejection>> + Send>>);

impl<P: TxProvider> Begin<P> {
    pub(super) fn new(
        provider: P,
        external: Option<Locks>,
        id: RecordId,
        fingerprint: Fingerprint,
        terms: Terms,
    ) -> Self {
        let claim = Claim {
            provider,
            id,
            fingerprint,
            terms,
        };
        Self(Box::pin(async move {
            let retry_after = claim.terms.retry_after;
            let begun = match external {
                None => claim.inside().await,
                Some(locks) => claim.outside(&locks).await,
            };
            begun.map_err(|rejection| rejection.or_retry_after(retry_after))
        }))
    }
}

impl<P: TxProvider> Future for Begin<P> {
    type Output = Result<Begun<P>, Rejection>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<P: TxProvider> fmt::Debug for Begin<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Begin").finish_non_exhaustive()
    }
}

/// A claim on a key.
#[derive(Clone, Debug)]
pub(super) struct Claim<P> {
    pub(super) provider: P,
    pub(super) id: RecordId,
    pub(super) fingerprint: Fingerprint,
    pub(super) terms: Terms,
}

impl<P: TxProvider> Claim<P> {
    /// For a handler that works in the transaction of the claim.
    async fn inside(self) -> Result<Begun<P>, Rejection> {
        let open = match self.open(self.terms.wait).await {
            Err(rejection) if rejection.kind() == RejectionKind::IdempotencyInFlight => {
                return self.look(rejection).await.map(Begun::Replay);
            }
            open => open?,
        };
        let (found, open) = self.find(open).await?;
        match self.answer(found, open).await? {
            Ok(response) => Ok(Begun::Replay(response)),
            Err(open) => Ok(Begun::Run(IdempotentRun::new(self, Work::Inside(open)))),
        }
    }

    /// Looks for the response without the key's lock: whoever has it may be one who repeats the request too.
    async fn look(&self, in_flight: Rejection) -> Result<Response<Bytes>, Rejection> {
        let beside = TxRequest::new(self.id.lock().derive("look", 0)).with_mode(Mode::Shared);
        let open = self.begin(beside).await?;
        let (found, open) = self.find(open).await?;
        self.answer(found, open).await?.map_err(|_| in_flight)
    }

    /// For a handler that works elsewhere, under a lock of session scope.
    async fn outside(self, locks: &Locks) -> Result<Begun<P>, Rejection> {
        let guard = match self.guard(locks).await {
            Err(rejection) if rejection.kind() == RejectionKind::IdempotencyInFlight => {
                return match self.look(rejection.clone()).await {
                    Ok(response) => Ok(Begun::Replay(response)),
                    // Whoever has the lock is at it.
                    Err(found) if found.kind() == RejectionKind::IdempotencyUnknown => Err(rejection),
                    Err(found) => Err(found),
                };
            }
            guard => guard?,
        };
        let open = self.open(None).await?;
        let (found, open) = self.find(open).await?;
        let answered = match self.answer(found, open).await {
            Ok(Err(open)) => return self.claim(open, guard).await.map(Begun::Run),
            Ok(Ok(response)) => Ok(Begun::Replay(response)),
            Err(rejection) => Err(rejection),
        };
        self.release(guard).await;
        answered
    }

    /// Stores the claim, in a task of its own: if whoever asked leaves meanwhile, nothing was done, and the claim is
    /// taken back.
    async fn claim(self, open: OpenTx<P>, guard: Guard) -> Result<IdempotentRun<P>, Rejection> {
        let (claimed, asks) = oneshot::channel();
        let claiming = async move {
            let stored = self.keep(open, Kept::Begun).await;
            let claim = Claimed::new(IdempotentRun::new(self, Work::Outside(guard)));
            // One that failed may be stored all the same, or will be, and is taken back as one that nobody waits for.
            // Whoever asked may have left, and may leave between this and its next poll.
            let _ = claimed.send(stored.map_err(not_begun).map(|()| claim));
        };
        spawn(claiming.in_current_span());
        match asks.await {
            Ok(claimed) => claimed.map(Claimed::take),
            Err(error) => Err(unreadable(TxError::unavailable(error))),
        }
    }

    async fn guard(&self, locks: &Locks) -> Result<Guard, Rejection> {
        let key = self.id.lock().derive("outside", 0);
        let acquired = match self.terms.wait {
            Some(limit) => locks.acquire(key).within(limit).await.map(Some),
            None => match timeout(self.terms.answer_within, locks.try_acquire(key)).await {
                Ok(acquired) => acquired,
                Err(_) => return Err(Rejection::new(RejectionKind::Unavailable)),
            },
        };
        match acquired {
            Ok(Some(guard)) => Ok(guard),
            Ok(None) | Err(AcquireError::TimedOut { .. }) => Err(Rejection::new(RejectionKind::IdempotencyInFlight)),
            Err(error) => Err(Rejection::new(RejectionKind::Unavailable).with_source(error)),
        }
    }

    /// Before the answer leaves, so that one who asks again does not meet our own lock.
    pub(super) async fn release(&self, guard: Guard) {
        let _ = timeout(self.terms.answer_within, guard.release()).await;
    }

    /// A transaction that has the key's lock.
    async fn open(&self, wait: Option<Duration>) -> Result<OpenTx<P>, Rejection> {
        let mut request = TxRequest::new(self.id.lock());
        if let Some(limit) = wait {
            request = request.with_wait(limit);
        }
        self.begin(request).await
    }

    async fn begin(&self, request: TxRequest) -> Result<OpenTx<P>, Rejection> {
        let request = request.with_answer_within(self.terms.answer_within);
        let open = TxAttempt::new(self.provider.clone(), request, Duration::ZERO).await;
        open.map_err(|rejection| match rejection.kind() {
            RejectionKind::LockBusy => Rejection::new(RejectionKind::IdempotencyInFlight),
            _ => rejection,
        })
    }

    /// Looks for a record, in a task of its own: a statement that is given up midway would spoil the connection.
    async fn find(&self, open: OpenTx<P>) -> Result<(Found, OpenTx<P>), Rejection> {
        let (id, fingerprint) = (self.id, self.fingerprint);
        let finding = async move {
            let found = match open.slot().check_out() {
                Ok(mut tx) => sql::find::<P>(&mut tx, &id, &fingerprint).await,
                Err(error) => Err(TxError::other(error)),
            };
            found.map(|found| (found, open))
        };
        let found = in_task(self.terms.answer_within, finding, TxError::Unavailable).await;
        found.map_err(unreadable)
    }

    /// What is known of a request as an answer to it, with its transaction ended; else the transaction, to carry it out.
    async fn answer(&self, found: Found, open: OpenTx<P>) -> Result<Result<Response<Bytes>, OpenTx<P>>, Rejection> {
        let answer = match found {
            Found::Nothing => return Ok(Err(open)),
            Found::Response(stored) => stored
                .replay()
                .ok_or_else(|| Rejection::new(RejectionKind::IdempotencyResponseGone)),
            Found::Mismatch => Err(Rejection::new(RejectionKind::IdempotencyMismatch)),
            Found::Tombstone => Err(Rejection::new(RejectionKind::IdempotencyResponseGone)),
            Found::Begun => Err(Rejection::new(RejectionKind::IdempotencyUnknown)),
        };
        // Before the answer leaves, so that one who asks again does not meet our own lock.
        open.end(false, self.terms.answer_within).await?;
        answer.map(Ok)
    }

    /// Stores what is to be kept in a transaction of its own.
    pub(super) async fn store_apart(&self, kept: Kept) -> Result<(), Rejection> {
        let open = self.open(Some(self.terms.answer_within)).await?;
        self.keep(open, kept).await
    }

    /// Stores what is to be kept, and commits, in a task of its own.
    pub(super) async fn keep(&self, open: OpenTx<P>, kept: Kept) -> Result<(), Rejection> {
        let (tx, rollback_only) = open.take()?;
        if rollback_only {
            // What rolls back whatever the response says leaves no trace of the key either.
            // Before the answer leaves, so that one who asks again does not meet our own lock.
            let _ = in_task(self.terms.answer_within, P::rollback(tx), TxError::Unavailable).await;
            return Ok(());
        }
        let keeping = store_and_commit::<P>(tx, self.id, self.fingerprint, kept, self.terms.retention);
        let ended = in_task(self.terms.answer_within, keeping, TxError::OutcomeUnknown).await;
        ended.map_err(Rejection::from_end)
    }
}

/// A claim that was stored, on its way to whoever asked. Dropped there, it is taken back: no handler has run.
struct Claimed<P: TxProvider> {
    /// `None` only while it is dropped.
    run: Option<IdempotentRun<P>>,
    /// What is dropped on another thread is taken back all the same.
    runtime: Handle,
}

impl<P: TxProvider> Claimed<P> {
    fn new(run: IdempotentRun<P>) -> Self {
        Self {
            run: Some(run),
            runtime: Handle::current(),
        }
    }

    fn take(mut self) -> IdempotentRun<P> {
        self.run.take().expect("a claim is there until it is dropped")
    }
}

impl<P: TxProvider> Drop for Claimed<P> {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            // What is wrong with that is logged there.
            let taking_back = async move { drop(run.take_back().await) };
            self.runtime.spawn(taking_back.in_current_span());
        }
    }
}

async fn store_and_commit<P: TxProvider>(
    mut tx: P::Tx,
    id: RecordId,
    fingerprint: Fingerprint,
    kept: Kept,
    retention: Duration,
) -> Result<(), TxError> {
    let stored = sql::store::<P>(&mut tx, &id, &fingerprint, &kept, retention).await;
    let ended = match stored {
        Ok(()) => P::commit(tx).await,
        Err(error) => {
            // What is wrong with the statement says more than what is wrong with its undoing.
            let _ = P::rollback(tx).await;
            Err(error)
        }
    };
    if let Err(error) = &ended {
        let error: &dyn Error = error;
        warn!(target: "latchwork::http", error, "the response to a request could not be kept");
    }
    ended
}

/// Where the claim of a request may have been stored or not, its handler has not run.
fn not_begun(rejection: Rejection) -> Rejection {
    match rejection.kind() {
        RejectionKind::TransactionUnknown | RejectionKind::TransactionLost => {
            Rejection::new(RejectionKind::Unavailable).with_source(rejection)
        }
        _ => rejection,
    }
}

fn unreadable(error: TxError) -> Rejection {
    let shown: &dyn Error = &error;
    warn!(target: "latchwork::http", error = shown, "the record of a request could not be read");
    Rejection::from_begin(error)
}
