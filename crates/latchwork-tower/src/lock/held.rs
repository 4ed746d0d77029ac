use std::{
    fmt,
    future::{Future, pending},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use latchwork_core::{Guard, HoldState, Key, Mode, ReleaseError};

/// The lock that the request being handled holds, as its handler sees it.
///
/// It is a view: keeping it does not keep the lock, which ends with the handler's future. With feature `axum` it is an
/// extractor, elsewhere it is found in the request's extensions. Of several layers the handler sees the innermost, and
/// the others by [`outer`](Self::outer).
#[derive(Clone)]
pub struct HeldLock {
    key: Key,
    mode: Mode,
    guard: Arc<Mutex<Option<Guard>>>,
    outer: Option<Box<Self>>,
}

impl HeldLock {
    pub(super) fn new(guard: Guard) -> (Self, Hold) {
        let (key, mode) = (guard.key(), guard.mode());
        let guard = Arc::new(Mutex::new(Some(guard)));
        let hold = Hold(Arc::clone(&guard));
        let view = Self {
            key,
            mode,
            guard,
            outer: None,
        };
        (view, hold)
    }

    pub(super) fn within(self, outer: Option<Self>) -> Self {
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
        lock(&self.guard).as_ref().is_some_and(Guard::is_held)
    }

    /// How far the hold can be believed right now; `None` once the request has been handled.
    #[must_use]
    pub fn state(&self) -> Option<HoldState> {
        lock(&self.guard).as_ref().map(Guard::state)
    }

    /// Resolves when the hold has ended without our release; never otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let lost = lock(&self.guard).as_ref().map(Guard::lost);
        async move {
            match lost {
                Some(lost) => lost.await,
                None => pending().await,
            }
        }
    }

    /// The lock of the next layer outside.
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

/// What keeps the lock: it is given up with this, whoever has a view of it.
pub(crate) struct Hold(Arc<Mutex<Option<Guard>>>);

impl Hold {
    pub(super) fn is_lost(&self) -> bool {
        lock(&self.0).as_ref().map(Guard::state) == Some(HoldState::Lost)
    }

    pub(super) fn lost(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        lock(&self.0).as_ref().map(Guard::lost)
    }

    /// Gives the lock up now; the future tells what became of it.
    pub(super) fn release(self) -> Option<impl Future<Output = Result<(), ReleaseError>> + Send> {
        let guard = lock(&self.0).take();
        guard.map(Guard::release)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let guard = lock(&self.0).take();
        drop(guard);
    }
}

/// No code of others runs under the mutex, so a panic elsewhere leaves nothing half done.
fn lock(guard: &Mutex<Option<Guard>>) -> MutexGuard<'_, Option<Guard>> {
    guard.lock().unwrap_or_else(PoisonError::into_inner)
}
