//! The value that stands for one slot of a pool.

use std::{fmt, future::Future};

use crate::{
    claim::{Claim, Origin},
    error::{Lost, ReleaseError},
    key::Key,
    session::HoldState,
};

/// One slot of a pool.
///
/// Dropping the permit gives the slot up without blocking: the next local waiter has it at once, or else the release
/// goes to the server with the next statement.
#[must_use = "the slot is given up when the permit is dropped"]
pub struct Permit {
    claim: Claim,
}

impl Permit {
    pub(crate) const fn new(claim: Claim) -> Self {
        Self { claim }
    }

    /// The number of the slot, from 0. No two permits of a pool have the same number at the same time.
    #[must_use]
    pub fn slot(&self) -> u32 {
        match self.claim.origin() {
            Origin::Pool { slot, .. } => *slot,
            Origin::Gate(_) => unreachable!("a permit is a pool's"),
        }
    }

    /// The key of the slot.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.claim.key()
    }

    /// Whether the slot can be believed to be held right now. Never blocks, and never rests on memory alone.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state() == HoldState::Held
    }

    /// How far the hold can be believed right now.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.claim.state()
    }

    /// Resolves when the hold has ended without our release; never otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.claim.lost()
    }

    /// Runs work under the permit, and cancels it (drops its future) when the hold is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the work. The slot stays held as long as the permit.
    ///
    /// # Errors
    ///
    /// [`Lost`] if the hold was lost before the work was done.
    pub fn run<F: Future>(&self, work: F) -> impl Future<Output = Result<F::Output, Lost>> {
        self.claim.run(work)
    }

    /// Gives the slot up and says whether it was held to the end.
    ///
    /// # Cancel safety
    ///
    /// The slot is given up by the call itself, whether or not the future is awaited.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Lost`] if the hold had ended before, [`ReleaseError::Unconfirmed`] if the connection ended
    /// before the server could say. In both cases the slot is no longer held.
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send {
        self.claim.release()
    }

    /// Leaves the slot held until its session ends. There is no way back to a permit, and
    /// [`Locks::close`](crate::Locks::close) would wait for it.
    pub fn leak(self) {
        self.claim.leak();
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("slot", &self.slot())
            .field("key", &self.key())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
