use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use latchwork_core::Guard;
use tokio::{spawn, sync::oneshot, time::sleep};
use tracing::{Instrument, warn};

use super::{begin::Claim, record::StoredResponse, sql::Kept};
use crate::{
    Rejection, RejectionKind, ResponseView,
    tx::{OpenTx, TxProvider, TxSlot},
};

/// A request that is being carried out.
///
/// Dropped, its transaction is rolled back and its key can be used again; of a handler that works outside of the
/// database, nobody will know how it ended.
#[must_use = "the request's transaction is rolled back when this is dropped"]
pub struct IdempotentRun<P: TxProvider> {
    claim: Claim<P>,
    work: Work<P>,
}

/// Where the handler works.
pub(super) enum Work<P: TxProvider> {
    Inside(OpenTx<P>),
    Outside(Guard),
}

impl<P: TxProvider> IdempotentRun<P> {
    pub(super) const fn new(claim: Claim<P>, work: Work<P>) -> Self {
        Self { claim, work }
    }

    /// Where the handler finds the transaction: to be put into the request's extensions. `None` for one that works
    /// outside of the database.
    #[must_use]
    pub const fn slot(&self) -> Option<&Arc<TxSlot<P::Tx>>> {
        match &self.work {
            Work::Inside(open) => Some(open.slot()),
            Work::Outside(_) => None,
        }
    }

    /// Keeps the response, with its `body` or, for one that is too large or a stream, without, and commits. To be awaited
    /// before the response leaves.
    ///
    /// # Errors
    ///
    /// The future resolves to the [`Rejection`] to answer with instead, if the response was not kept.
    pub fn keep(self, response: &dyn ResponseView, body: Option<Bytes>) -> Finish {
        let kept = match body {
            Some(body) => Kept::Response(StoredResponse::new(response, &self.claim.terms.kept_headers, body)),
            None => Kept::Tombstone(response.status()),
        };
        let Self { claim, work } = self;
        Finish(Box::pin(async move {
            // In a task that goes on when the client has left.
            let sweeper = Arc::clone(&claim.terms.sweeper);
            let provider = claim.provider.clone();
            let retry_after = claim.terms.retry_after;
            let kept = match work {
                Work::Inside(open) => claim.keep(open, kept).await,
                Work::Outside(guard) => keep_outside(claim, guard, kept).await,
            };
            sweeper.run(&provider);
            kept.map_err(|rejection| rejection.or_retry_after(retry_after))
        }))
    }

    /// Ends a request whose response broke off before it could be kept: its work is rolled back. Of a handler that
    /// works outside of the database, nobody will know how it ended. Resolves to the [`Rejection`] to answer with
    /// instead.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    pub async fn break_off(self) -> Rejection {
        let rejection = match &self.work {
            Work::Inside(_) => Rejection::new(RejectionKind::TransactionFailed),
            Work::Outside(_) => not_kept(),
        };
        self.fail().await.err().unwrap_or(rejection)
    }

    /// Ends a request whose handler has no response of its own, since it failed or was stopped midway: its work is
    /// rolled back, and the key can be used again. Of a handler that works outside of the database, nobody will know
    /// how it ended.
    ///
    /// # Errors
    ///
    /// As [`IdempotentRun::keep`].
    pub fn fail(self) -> Finish {
        let Self { claim, work } = self;
        Finish(Box::pin(async move {
            let limit = claim.terms.answer_within;
            match work {
                Work::Inside(open) => open.end(false, limit).await,
                Work::Outside(guard) => {
                    claim.release(guard).await;
                    Ok(())
                }
            }
        }))
    }

    /// Ends a request whose response is not to be kept: the claim is taken back, and the key can be used again. `refused`
    /// says what a policy inside has answered in the handler's place, if one has: then the handler may have been stopped
    /// midway, and it is as if it had [failed](Self::fail).
    ///
    /// # Errors
    ///
    /// As [`IdempotentRun::keep`].
    pub fn not_kept(self, refused: Option<RejectionKind>) -> Finish {
        match refused {
            Some(kind) if kind.comes_after_the_handler() => self.fail(),
            _ => self.take_back(),
        }
    }

    /// Takes the claim back.
    pub(super) fn take_back(self) -> Finish {
        let Self { claim, work } = self;
        Finish(Box::pin(async move {
            let limit = claim.terms.answer_within;
            match work {
                Work::Inside(open) => open.end(false, limit).await,
                Work::Outside(guard) => keep_outside(claim, guard, Kept::Nothing).await,
            }
        }))
    }
}

/// Stores the end of a handler that has worked elsewhere. The lock is held until that is stored: where it cannot be done
/// at once, as with a pool that is busy, it is tried again behind the answer.
async fn keep_outside<P: TxProvider>(claim: Claim<P>, guard: Guard, kept: Kept) -> Result<(), Rejection> {
    let (told, first) = oneshot::channel();
    let storing = async move {
        let stored = claim.store_apart(kept.clone()).await;
        // Whoever asked may have gone.
        if stored.as_ref().is_err_and(may_pass) {
            let _ = told.send(stored);
            store_later(&claim, &guard, kept).await;
            claim.release(guard).await;
        } else {
            claim.release(guard).await;
            let _ = told.send(stored);
        }
    };
    spawn(storing.in_current_span());
    match first.await {
        Ok(stored) => stored.map_err(|rejection| not_kept().with_source(rejection)),
        Err(error) => {
            warn!(target: "latchwork::http", %error, "the response to a request was not kept");
            Err(not_kept())
        }
    }
}

async fn store_later<P: TxProvider>(claim: &Claim<P>, guard: &Guard, kept: Kept) {
    for _ in 0..TRIES {
        sleep(PAUSE).await;
        if !guard.is_held() || !claim.store_apart(kept.clone()).await.as_ref().is_err_and(may_pass) {
            return;
        }
    }
}

/// Whether a record that was not stored may be stored a little later.
fn may_pass(rejection: &Rejection) -> bool {
    matches!(
        rejection.kind(),
        RejectionKind::Unavailable
            | RejectionKind::IdempotencyInFlight
            | RejectionKind::TransactionLost
            | RejectionKind::TransactionUnknown
    )
}

/// How often an end that could not be stored is tried again, and how long after the last time. All that while its lock says
/// that somebody is at it.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_secs(1);

/// The handler has worked, whatever the database says: neither that nothing was done nor to ask again.
fn not_kept() -> Rejection {
    Rejection::new(RejectionKind::TransactionUnknown)
        .with_detail("the request was carried out, and how it ended could not be stored; look before you ask again")
}

impl<P: TxProvider> fmt::Debug for IdempotentRun<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotentRun").finish_non_exhaustive()
    }
}

/// The end of a request. See [`IdempotentRun::keep`].
#[must_use = "futures do nothing unless awaited"]
pub struct Finish(Pin<Box<dyn Future<Output = Result<(), Rejection>> + Send>>);

impl Future for Finish {
    type Output = Result<(), Rejection>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for Finish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finish").finish_non_exhaustive()
    }
}
