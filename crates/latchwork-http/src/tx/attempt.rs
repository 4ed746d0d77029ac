use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tracing::warn;

use super::{OpenTx, TxError, TxProvider, TxRequest, TxSlot, in_task, join};
use crate::{Rejection, RejectionKind};

/// Begins the transaction that a request needs, with its lock, in a task of its own.
///
/// # Cancel safety
///
/// The future may be dropped at any time. What was begun is rolled back, at the latest when its provider has an answer.
///
/// # Errors
///
/// The [`Rejection`] to answer with.
#[must_use = "futures do nothing unless awaited"]
pub struct TxAttempt<P: TxProvider>(Pin<Box<dyn Future<Output = Result<OpenTx<P>, Rejection>> + Send>>);

impl<P: TxProvider> TxAttempt<P> {
    /// An attempt that is refused with when to ask again, if asking again can help.
    pub(crate) fn new(provider: P, request: TxRequest, retry_after: Duration) -> Self {
        Self::refusing(begin(provider, request), retry_after)
    }

    /// As [`new`](Self::new), but takes the lock in a transaction that is open already.
    pub(super) fn join(slot: Arc<TxSlot<P::Tx>>, request: TxRequest, retry_after: Duration) -> Self {
        let joined = async move {
            join::lock::<P>(&slot, request).await?;
            Ok(OpenTx::joined(slot))
        };
        Self::refusing(joined, retry_after)
    }

    fn refusing(
        attempt: impl Future<Output = Result<OpenTx<P>, Rejection>> + Send + 'static,
        retry_after: Duration,
    ) -> Self {
        Self(Box::pin(async move {
            attempt.await.map_err(|rejection| rejection.or_retry_after(retry_after))
        }))
    }
}

async fn begin<P: TxProvider>(provider: P, request: TxRequest) -> Result<OpenTx<P>, Rejection> {
    let limit = request
        .answer_within()
        .saturating_add(request.wait().unwrap_or_default());
    let (_asks, request) = request.watched();
    let begins = async move {
        let begun = provider.begin(request).await;
        // Armed at once: whoever asked may have left.
        begun.map(|tx| tx.map(OpenTx::<P>::new))
    };
    match in_task(limit, begins, TxError::Unavailable).await {
        Ok(Some(open)) => Ok(open),
        Ok(None) => Err(Rejection::new(RejectionKind::LockBusy)),
        Err(error) => {
            let shown: &dyn Error = &error;
            warn!(target: "latchwork::http", error = shown, "a transaction could not be begun");
            Err(Rejection::from_begin(error))
        }
    }
}

impl<P: TxProvider> Future for TxAttempt<P> {
    type Output = Result<OpenTx<P>, Rejection>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<P: TxProvider> fmt::Debug for TxAttempt<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxAttempt").finish_non_exhaustive()
    }
}
