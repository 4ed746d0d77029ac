use std::fmt;

use latchwork_core::{Key, Permit};

use super::hold::{Held, Hold};

/// The slot that the request being handled holds, as its handler sees it.
///
/// It is a view: keeping it does not keep the slot, which ends with the response's body. A handler whose work goes on
/// elsewhere takes the permit with [`take`](Self::take). The adapters have a type of their own around it, which is an
/// extractor. Of several policies the handler sees the innermost, and the others by [`outer`](Self::outer).
#[derive(Clone)]
pub struct HeldPermit {
    slot: u32,
    key: Key,
    permit: Held<Permit>,
    outer: Option<Box<Self>>,
}

impl HeldPermit {
    /// Parts a permit into what the handler sees and what keeps the slot.
    pub fn new(permit: Permit) -> (Self, Hold<Permit>) {
        let (slot, key) = (permit.slot(), permit.key());
        let (permit, hold) = Hold::new(permit);
        let view = Self {
            slot,
            key,
            permit,
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
        self.permit.look(Permit::is_held).unwrap_or(false)
    }

    /// Takes the permit, so that the slot is held until that is dropped, for instance in the task that serves a
    /// socket. `None` if it was taken before, or the response's body has ended.
    #[must_use = "the slot is given up when the permit is dropped"]
    pub fn take(&self) -> Option<Permit> {
        self.permit.take()
    }

    /// The slot of the next policy outside.
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
