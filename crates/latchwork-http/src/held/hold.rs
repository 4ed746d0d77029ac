use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What keeps the guard of a [`HeldLock`](crate::HeldLock) or the permit of a [`HeldPermit`](crate::HeldPermit): it is
/// given up with this, whoever has a view of it, unless the handler has taken it out.
#[must_use = "what is held is given up when this is dropped"]
pub struct Hold<T>(Held<T>);

/// A view of what is held, and the way to take it out.
pub(super) struct Held<T>(Arc<Mutex<Option<T>>>);

impl<T> Hold<T> {
    pub(super) fn new(held: T) -> (Held<T>, Self) {
        let held = Held(Arc::new(Mutex::new(Some(held))));
        (held.clone(), Self(held))
    }

    pub(super) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.look(look)
    }

    pub(super) fn take(&self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Drop for Hold<T> {
    fn drop(&mut self) {
        let held = self.take();
        drop(held);
    }
}

impl<T> fmt::Debug for Hold<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

impl<T> Held<T> {
    /// What is seen of it; `None` if it was taken out or given up.
    pub(super) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.lock().as_ref().map(look)
    }

    pub(super) fn take(&self) -> Option<T> {
        self.lock().take()
    }

    /// No code of others runs under the mutex, so a panic elsewhere leaves nothing half done.
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Held<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}
