use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use actix_web::{HttpMessage, HttpRequest};
use latchwork_http::tx::{self, CheckOutError, TxSlot};

/// The transaction of the request being handled, under its lock: an extractor.
///
/// It is lent: dropped, it goes back to the request, and is committed or rolled back when the handler has returned its
/// response. A middleware and the handler can have it one after the other, not at once. A request whose transaction is
/// still out when the response is there, as in a spawned task or in the response's own stream, is answered with 500 and
/// rolled back.
///
/// `Tx` is the provider's type of transaction. Where a middleware may let a request pass without one, ask for an
/// `Option` of it, which is `None` too while another has it, or for a `Result`, which says why there is none.
#[must_use = "the transaction goes back when this is dropped"]
pub struct LockedTx<Tx: Send + 'static>(tx::LockedTx<Tx>);

impl<Tx: Send + 'static> LockedTx<Tx> {
    /// Takes it out of a request; `None` if no middleware has put one there, or the middleware lets the request pass
    /// without.
    ///
    /// # Errors
    ///
    /// [`CheckOutError`] if it is in use already, or the request has ended.
    pub fn take_from(request: &HttpRequest) -> Result<Option<Self>, CheckOutError> {
        let extensions = request.extensions();
        let slot = extensions.get::<Arc<TxSlot<Tx>>>();
        slot.map(|slot| slot.check_out().map(Self)).transpose()
    }

    /// Has the transaction rolled back at the end, whatever the response says.
    ///
    /// An associated function, since the transaction has its own methods.
    pub fn rollback_only(this: &Self) {
        tx::LockedTx::rollback_only(&this.0);
    }
}

impl<Tx: Send + 'static> Deref for LockedTx<Tx> {
    type Target = Tx;

    fn deref(&self) -> &Tx {
        &self.0
    }
}

impl<Tx: Send + 'static> DerefMut for LockedTx<Tx> {
    fn deref_mut(&mut self) -> &mut Tx {
        &mut self.0
    }
}

impl<Tx: Send + 'static> fmt::Debug for LockedTx<Tx> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedTx").finish_non_exhaustive()
    }
}
