use std::{
    fmt,
    future::Future,
    mem::replace,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::runtime::Handle;
use tracing::{Instrument, Span, warn};

use super::{TxError, TxProvider};

/// Where the transaction of a request is kept while nobody uses it. It travels in the request's extensions as
/// `Arc<TxSlot<Tx>>`.
pub struct TxSlot<Tx> {
    state: Mutex<State<Tx>>,
    undo: fn(Tx) -> Undoing,
    /// What is dropped on another thread is rolled back all the same.
    runtime: Handle,
    span: Span,
}

struct State<Tx> {
    place: Place<Tx>,
    rollback_only: bool,
}

enum Place<Tx> {
    Idle(Tx),
    CheckedOut,
    Closed,
}

/// What becomes of a transaction at its request's end.
pub(super) enum Closed<Tx> {
    Idle {
        tx: Tx,
        rollback_only: bool,
    },
    CheckedOut,
    /// It was closed before.
    Gone,
}

type Undoing = Pin<Box<dyn Future<Output = Result<(), TxError>> + Send>>;

impl<Tx: Send + 'static> TxSlot<Tx> {
    pub(super) fn new<P: TxProvider<Tx = Tx>>(tx: Tx) -> Self {
        Self {
            state: Mutex::new(State {
                place: Place::Idle(tx),
                rollback_only: false,
            }),
            undo: |tx| Box::pin(P::rollback(tx)),
            runtime: Handle::current(),
            span: Span::current(),
        }
    }

    /// Takes the transaction out until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// [`CheckOutError`] if it is taken out already, or its request has ended.
    pub fn check_out(self: &Arc<Self>) -> Result<LockedTx<Tx>, CheckOutError> {
        let mut state = self.lock();
        match replace(&mut state.place, Place::CheckedOut) {
            Place::Idle(tx) => Ok(LockedTx {
                tx: Some(tx),
                slot: Arc::clone(self),
            }),
            Place::CheckedOut => Err(CheckOutError::InUse),
            Place::Closed => {
                state.place = Place::Closed;
                Err(CheckOutError::Ended)
            }
        }
    }

    /// Ends the slot. What is taken out now is rolled back when it comes back.
    pub(super) fn close(&self) -> Closed<Tx> {
        let mut state = self.lock();
        let rollback_only = state.rollback_only;
        match replace(&mut state.place, Place::Closed) {
            Place::Idle(tx) => Closed::Idle { tx, rollback_only },
            Place::CheckedOut => Closed::CheckedOut,
            Place::Closed => Closed::Gone,
        }
    }

    pub(super) fn roll_back_at_end(&self) {
        self.lock().rollback_only = true;
    }

    /// Rolls a transaction back in a task of its own. A runtime that is shut down drops it, which closes its
    /// connection.
    pub(super) fn roll_back(&self, tx: Tx) {
        let undoing = (self.undo)(tx);
        let logged = async move {
            if let Err(error) = undoing.await {
                let error: &dyn std::error::Error = &error;
                warn!(target: "latchwork::http", error, "a transaction was not rolled back in order; its connection was closed");
            }
        };
        self.runtime.spawn(logged.instrument(self.span.clone()));
    }

    fn give_back(&self, tx: Tx) {
        let mut state = self.lock();
        if matches!(state.place, Place::CheckedOut) {
            state.place = Place::Idle(tx);
        } else {
            drop(state);
            warn!(target: "latchwork::http", "a transaction came back after its request had ended; rolling back");
            self.roll_back(tx);
        }
    }

    /// No code of others runs under the mutex, so a panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, State<Tx>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Tx> fmt::Debug for TxSlot<Tx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxSlot").finish_non_exhaustive()
    }
}

/// The transaction of a request, under its lock. It goes back to the request when this is dropped, and ends with it.
///
/// Drop it before the handler's response is returned: a request whose transaction is still taken out then, as by a
/// spawned task, is answered with 500 and rolled back.
#[must_use = "the transaction goes back when this is dropped"]
pub struct LockedTx<Tx: Send + 'static> {
    /// `None` only while it is dropped.
    tx: Option<Tx>,
    slot: Arc<TxSlot<Tx>>,
}

impl<Tx: Send + 'static> LockedTx<Tx> {
    /// Has the transaction rolled back at the end, whatever the response says.
    ///
    /// An associated function, since the transaction has its own methods.
    pub fn rollback_only(this: &Self) {
        this.slot.roll_back_at_end();
    }
}

const PRESENT: &str = "a transaction is there until it is dropped";

impl<Tx: Send + 'static> Deref for LockedTx<Tx> {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        self.tx.as_ref().expect(PRESENT)
    }
}

impl<Tx: Send + 'static> DerefMut for LockedTx<Tx> {
    fn deref_mut(&mut self) -> &mut Tx {
        self.tx.as_mut().expect(PRESENT)
    }
}

impl<Tx: Send + 'static> Drop for LockedTx<Tx> {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.take() {
            self.slot.give_back(tx);
        }
    }
}

impl<Tx: Send + 'static> fmt::Debug for LockedTx<Tx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedTx").finish_non_exhaustive()
    }
}

/// Why a transaction cannot be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckOutError {
    /// It is taken out already.
    #[error("the request's transaction is in use: drop the first LockedTx before asking for another")]
    InUse,
    /// The request has ended, and the transaction with it.
    #[error("the request has ended, and its transaction with it: use it before the response is returned")]
    Ended,
}
