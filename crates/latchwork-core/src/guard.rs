//! The value that stands for a held key.

use std::{fmt, future::Future};

use crate::{
    claim::Claim,
    error::{Lost, ReleaseError},
    key::Key,
    mode::Mode,
    session::HoldState,
};

/// A held key.
///
/// Dropping the guard gives the key up without blocking: the next local waiter has it at once, or else the release
/// goes to the server with the next statement. [`Guard::release`] does the same and says whether the key was held to
/// the end.
///
/// A guard is never re-acquired behind its holder's back: when the session that it rests on ends, [`Guard::lost`]
/// resolves and [`Guard::is_held`] is false for good.
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # use latchwork_core::Locks;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let locks = Locks::in_memory();
/// let guard = locks.acquire("report").within(Duration::from_secs(1)).await?;
/// let pages = guard.run(async { 7 }).await?;
/// guard.release().await?;
/// # assert_eq!(pages, 7);
/// # Ok(())
/// # }
/// ```
#[must_use = "the key is given up when the guard is dropped"]
pub struct Guard {
    claim: Claim,
    mode: Mode,
}

impl Guard {
    pub(crate) const fn new(claim: Claim, mode: Mode) -> Self {
        Self { claim, mode }
    }

    /// The key that is held.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.claim.key()
    }

    /// How it is held.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether the key can be believed to be held right now: its connection stands, and the server answered on it not
    /// too long ago. Never blocks, and never rests on memory alone.
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
        self.claim.run(work)
    }

    /// Gives the key up and says whether it was held to the end. Where the next local waiter takes the key over, that
    /// needs no word to the server; else the future waits for the server's answer.
    ///
    /// # Cancel safety
    ///
    /// The key is given up by the call itself, whether or not the future is awaited.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Lost`] if the hold had ended before, [`ReleaseError::Unconfirmed`] if the connection ended
    /// before the server could say. In both cases the key is no longer held.
    pub fn release(self) -> impl Future<Output = Result<(), ReleaseError>> + Send {
        self.claim.release()
    }

    /// Leaves the key held until its session ends, for work that outlives every guard. There is no way back
    /// to a guard, and [`Locks::close`](crate::Locks::close) would wait for it.
    pub fn leak(self) {
        self.claim.leak();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &self.key())
            .field("mode", &self.mode)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
