use std::{
    fmt,
    future::{Future, pending},
};

use latchwork_core::{Guard, HoldState, Key, Mode, ReleaseError};

use super::hold::{Held, Hold};

/// The lock that the request being handled holds, as its handler sees it.
///
/// It is a view: keeping it does not keep the lock, which ends with the handler's future. The adapters have a type of
/// their own around it, which is an extractor. Of several policies the handler sees the innermost, and the others by
/// [`outer`](Self::outer).
#[derive(Clone)]
pub struct HeldLock {
    key: Key,
    mode: Mode,
    guard: Held<Guard>,
    outer: Option<Box<Self>>,
}

impl HeldLock {
    /// Parts a guard into what the handler sees and what keeps the lock.
    pub fn new(guard: Guard) -> (Self, Hold<Guard>) {
        let (key, mode) = (guard.key(), guard.mode());
        let (guard, hold) = Hold::new(guard);
        let view = Self {
            key,
            mode,
            guard,
            outer: None,
        };
        (view, hold)
    }

    /// Adds what the next policy outside holds.
    #[must_use]
    pub fn within(self, outer: Option<Self>) -> Self {
        Self {
            outer: outer.map(Box::new),
            ..self
        }
    }

    /// The key that is held.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// How it is held.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether the key can be believed to be held right now. False once the request has been handled.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.look(Guard::is_held).unwrap_or(false)
    }

    /// How far the hold can be believed right now; `None` once the request has been handled.
    #[must_use]
    pub fn state(&self) -> Option<HoldState> {
        self.guard.look(Guard::state)
    }

    /// Resolves when the hold has ended without our release; never otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let lost = self.guard.look(Guard::lost);
        async move {
            match lost {
                Some(lost) => lost.await,
                None => pending().await,
            }
        }
    }

    /// The lock of the next policy outside.
    #[must_use]
    pub fn outer(&self) -> Option<&Self> {
        self.outer.as_deref()
    }
}

impl fmt::Debug for HeldLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLock")
            .field("key", &self.key)
            .field("mode", &self.mode)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Hold<Guard> {
    pub(crate) fn is_lost(&self) -> bool {
        self.look(Guard::state) == Some(HoldState::Lost)
    }

    pub(crate) fn lost(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.look(Guard::lost)
    }

    /// Gives the lock up now; the future tells what became of it.
    pub(crate) fn release(self) -> Option<impl Future<Output = Result<(), ReleaseError>> + Send> {
        self.take().map(Guard::release)
    }
}
