use std::{fmt, future::Future, sync::Arc};

use super::{Fence, Term};
use crate::{
    claim::{released, run_until_lost},
    engine::{FencedGrant, FencedHold},
    error::{Lost, ReleaseError},
    key::Key,
    locks::Inner,
    mode::Mode,
    session::{HoldState, SessionHealth},
};

/// A key that is held fenced: whatever becomes of this process, no fenced transaction of this grant commits once another
/// holder has begun.
///
/// Dropping the guard gives the key up without blocking. See [`Guard`](crate::Guard) for what both have.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use latchwork_core::Locks;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = Locks::in_memory();
/// let guard = locks.acquire_fenced("billing").within(Duration::from_secs(10)).await?;
/// let (fence, term) = (guard.fence(), guard.term());
/// println!("transactions prove {fence}; elsewhere we are {term}");
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the key is given up when the guard is dropped"]
pub struct FencedGuard {
    inner: Arc<Inner>,
    session: Arc<SessionHealth>,
    fence: Fence,
    term: Term,
    /// `None` once it is given up.
    hold: Option<FencedHold>,
}

impl FencedGuard {
    pub(super) fn new(inner: Arc<Inner>, grant: FencedGrant) -> Self {
        let FencedGrant {
            session,
            fence,
            term,
            hold,
        } = grant;
        inner.fenced_begins(&session);
        Self {
            inner,
            session,
            fence,
            term,
            hold: Some(hold),
        }
    }

    /// The key that is held.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.fence.key()
    }

    /// How it is held.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.fence.mode()
    }

    /// What fenced transactions of this grant prove.
    #[must_use]
    pub const fn fence(&self) -> Fence {
        self.fence
    }

    /// The fencing token of this grant, for what is outside of the database.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    pub(crate) const fn session(&self) -> &Arc<SessionHealth> {
        &self.session
    }

    /// Whether the key can be believed to be held right now. Never blocks, and never rests on memory alone.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state() == HoldState::Held
    }

    /// How far the hold can be believed right now.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.session.state()
    }

    /// Resolves when the hold has ended without our release; never otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let session = Arc::clone(&self.session);
        async move { session.lost().await }
    }

    /// Runs work under the guard, and cancels it (drops its future) when the hold is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. The key stays held as long as the guard.
    ///
    /// # Errors
    ///
    /// [`Lost`] if the hold was lost before the work was done.
    pub fn run<F: Future>(&self, work: F) -> impl Future<Output = Result<F::Output, Lost>> {
        run_until_lost(self.key(), Arc::clone(&self.session), work)
    }

    /// Gives the key up and says whether it was held to the end.
    ///
    /// # Cancel safety
    ///
    /// The key is given up by the call itself, whether or not the future is awaited.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Lost`] if the hold had ended before, [`ReleaseError::Unconfirmed`] if the connection ended before
    /// the server could say. In both cases the key is no longer held.
    pub fn release(mut self) -> impl Future<Output = Result<(), ReleaseError>> + Send {
        let (key, lost) = (self.key(), self.session.is_lost());
        let hold = self.hold.take().expect("only what was given up has no hold");
        let answer = hold.release();
        async move {
            if lost {
                return Err(ReleaseError::Lost { key });
            }
            released(key, answer).await
        }
    }
}

impl Drop for FencedGuard {
    fn drop(&mut self) {
        drop(self.hold.take());
        self.inner.fenced_ends(&self.session);
    }
}

impl fmt::Debug for FencedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedGuard")
            .field("key", &self.key())
            .field("mode", &self.mode())
            .field("term", &self.term)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
