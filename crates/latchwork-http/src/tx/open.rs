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

use super::{TxError, TxProvider, TxSlot, in_task, slot::Closed};
use crate::{Rejection, RejectionKind};

/// An open transaction of a request, with its lock. Dropped, it is rolled back in a task of its own, or at its end by
/// whoever has opened it.
#[must_use = "the transaction is rolled back when this is dropped"]
pub struct OpenTx<P: TxProvider> {
    slot: Arc<TxSlot<P::Tx>>,
    /// Opened by somebody else, who ends it.
    joined: bool,
    /// For who has opened it to commit.
    ended_well: bool,
}

impl<P: TxProvider> OpenTx<P> {
    /// Guards a transaction that was just begun. Called in a Tokio runtime.
    pub(crate) fn new(tx: P::Tx) -> Self {
        let slot = Arc::new(TxSlot::new::<P>(tx));
        Self {
            slot,
            joined: false,
            ended_well: false,
        }
    }

    pub(super) const fn joined(slot: Arc<TxSlot<P::Tx>>) -> Self {
        Self {
            slot,
            joined: true,
            ended_well: false,
        }
    }

    /// Where handlers find it: to be put into the request's extensions.
    #[must_use]
    pub const fn slot(&self) -> &Arc<TxSlot<P::Tx>> {
        &self.slot
    }

    /// Takes the transaction for good, to end it, and whether it is to be rolled back whatever happens.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] if it is taken out, as by a task that the handler has spawned. It is rolled back when it comes
    /// back.
    pub(crate) fn take(self) -> Result<(P::Tx, bool), Rejection> {
        match self.slot.close() {
            Closed::Idle { tx, rollback_only } => Ok((tx, rollback_only)),
            Closed::CheckedOut | Closed::Gone => Err(Rejection::new(RejectionKind::TransactionInUse)),
        }
    }

    /// Ends the transaction in a task of its own, which goes on if the future is dropped after its first poll; before
    /// that the transaction is rolled back.
    ///
    /// Resolves within `limit`, with the [`Rejection`] to answer with if the transaction was not committed though it
    /// should have been, or is taken out. A transaction that a layer outside has opened is left to that layer, which
    /// rolls it back if `commit` is false.
    pub(crate) fn end(self, commit: bool, limit: Duration) -> TxEnd {
        TxEnd(Box::pin(end(self, commit, limit)))
    }
}

async fn end<P: TxProvider>(mut open: OpenTx<P>, commit: bool, limit: Duration) -> Result<(), Rejection> {
    if open.joined {
        open.ended_well = commit;
        return Ok(());
    }
    let (tx, rollback_only) = open.take()?;
    let commit = commit && !rollback_only;
    let ending = async move {
        let ended = if commit {
            P::commit(tx).await
        } else {
            P::rollback(tx).await
        };
        if let Err(error) = &ended {
            let error: &dyn Error = error;
            warn!(target: "latchwork::http", error, commit, "a transaction did not end as it should");
        }
        ended
    };
    match in_task(limit, ending, TxError::OutcomeUnknown).await {
        Err(error) if commit => Err(Rejection::from_end(error)),
        // What is not committed is rolled back, at the latest with its connection.
        _ => Ok(()),
    }
}

impl<P: TxProvider> Drop for OpenTx<P> {
    fn drop(&mut self) {
        if self.joined {
            if !self.ended_well {
                self.slot.roll_back_at_end();
            }
            return;
        }
        if let Closed::Idle { tx, .. } = self.slot.close() {
            self.slot.roll_back(tx);
        }
    }
}

impl<P: TxProvider> fmt::Debug for OpenTx<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTx").finish_non_exhaustive()
    }
}

/// The end of a transaction. See [`OpenTx::end`].
#[must_use = "futures do nothing unless awaited"]
pub struct TxEnd(Pin<Box<dyn Future<Output = Result<(), Rejection>> + Send>>);

impl Future for TxEnd {
    type Output = Result<(), Rejection>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for TxEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxEnd").finish_non_exhaustive()
    }
}
