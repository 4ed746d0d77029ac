use std::ops::Deref;

use actix_web::{HttpMessage, dev::ServiceRequest};
use latchwork_core::Guard;
use latchwork_http::Hold;

/// The lock that the request being handled holds, as its handler sees it: an extractor.
///
/// All it can do is in [`latchwork_http::HeldLock`].
#[derive(Clone, Debug)]
pub struct HeldLock(latchwork_http::HeldLock);

impl HeldLock {
    /// Puts the view of a guard where the handler finds it. What is returned keeps the lock.
    pub(super) fn put(guard: Guard, request: &ServiceRequest) -> Hold<Guard> {
        let (view, hold) = latchwork_http::HeldLock::new(guard);
        let mut extensions = request.extensions_mut();
        let outer = extensions.remove().map(|Self(outer)| outer);
        extensions.insert(Self(view.within(outer)));
        hold
    }
}

impl Deref for HeldLock {
    type Target = latchwork_http::HeldLock;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}
