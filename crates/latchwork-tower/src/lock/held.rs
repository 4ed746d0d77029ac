use std::ops::Deref;

use latchwork_core::Guard;
use latchwork_http::Hold;

use crate::RequestHead;

/// The lock that the request being handled holds, as its handler sees it.
///
/// With feature `axum` it is an extractor, elsewhere it is found in the request's extensions. All it can do is in
/// [`latchwork_http::HeldLock`].
#[derive(Clone, Debug)]
pub struct HeldLock(latchwork_http::HeldLock);

impl HeldLock {
    /// Puts the view of a guard where the handler finds it. What is returned keeps the lock.
    pub(super) fn put(guard: Guard, head: &mut RequestHead) -> Hold<Guard> {
        let (view, hold) = latchwork_http::HeldLock::new(guard);
        if let Some(Self(outer)) = head.insert(Self(view.clone())) {
            head.insert(Self(view.within(Some(outer))));
        }
        hold
    }
}

impl Deref for HeldLock {
    type Target = latchwork_http::HeldLock;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
