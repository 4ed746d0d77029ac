use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use latchwork_core::{Key, Permit};

/// The slot that the request being handled holds, as its handler sees it.
///
/// It is a view: keeping it does not keep the slot, which ends with the response's body. A handler whose work goes on
/// elsewhere takes the permit with [`take`](Self::take). With feature `axum` it is an extractor, elsewhere it is found
/// in the request's extensions. Of several layers the handler sees the innermost, and the others by
/// [`outer`](Self::outer).
#[derive(Clone)]
pub struct HeldPermit {
    slot: u32,
    key: Key,
    permit: Arc<Mutex<Option<Permit>>>,
    outer: Option<Box<Self>>,
}

impl HeldPermit {
    pub(super) fn new(permit: Permit) -> (Self, Hold) {
        let (slot, key) = (permit.slot(), permit.key());
        let permit = Arc::new(Mutex::new(Some(permit)));
        let hold = Hold(Arc::clone(&permit));
        let view = Self {
            slot,
            key,
            permit,
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

    /// The number of the slot, from 0. No two requests have the same number of a pool at the same time.
    #[must_use]
    pub const fn slot(&self) -> u32 {
        self.slot
    }

    /// The key of the slot.
    #[must_use]
    pub const fn key(&self) -> Key {
        self.key
    }

    /// Whether the slot can be believed to be held right now. False once the response's body has ended, or the permit
    /// was taken.
    #[must_use]
    pub fn is_held(&self) -> bool {
        lock(&self.permit).as_ref().is_some_and(Permit::is_held)
    }

    /// Takes the permit, so that the slot is held until that is dropped, for instance in the task that serves a
    /// socket. `None` if it was taken before, or the response's body has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use latchwork_tower::HeldPermit;
    ///
    /// async fn events(held: HeldPermit) {
    ///     let permit = held.take();
    ///     tokio::spawn(async move {
    ///         // Work that outlives the response.
    ///         drop(permit);
    ///     });
    /// }
    /// # let _ = events;
    /// ```
    #[must_use = "the slot is given up when the permit is dropped"]
    pub fn take(&self) -> Option<Permit> {
        lock(&self.permit).take()
    }

    /// The slot of the next layer outside.
    #[must_use]
    pub fn outer(&self) -> Option<&Self> {
        self.outer.as_deref()
    }
}

impl fmt::Debug for HeldPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldPermit")
            .field("slot", &self.slot)
            .field("key", &self.key)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

/// What keeps the slot, unless the handler has taken the permit.
pub(crate) struct Hold(Arc<Mutex<Option<Permit>>>);

impl Drop for Hold {
    fn drop(&mut self) {
        let permit = lock(&self.0).take();
        drop(permit);
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

/// No code of others runs under the mutex, so a panic elsewhere leaves nothing half done.
fn lock(permit: &Mutex<Option<Permit>>) -> MutexGuard<'_, Option<Permit>> {
    permit.lock().unwrap_or_else(PoisonError::into_inner)
}
