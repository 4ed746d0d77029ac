//! A handler with its slot.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use latchwork_core::Permit;
use latchwork_http::{Hold, SlotPolicy};
use pin_project_lite::pin_project;

use crate::{
    RequestHead,
    admission::{Outcome, Under},
};

type Policy = SlotPolicy<RequestHead>;

pin_project! {
    /// Carries the slot along with a handler, and hands it on with the handler's response.
    ///
    /// The handler comes first: whenever both are dropped, by a panic too, nothing of it runs without the slot.
    pub(super) struct WithSlot<F> {
        #[pin]
        handler: F,
        hold: Option<Hold<Permit>>,
        until_response: bool,
    }
}

impl<F> Under<Policy, F> for WithSlot<F> {
    fn new(handler: F, hold: Hold<Permit>, policy: &Arc<Policy>) -> Self {
        Self {
            handler,
            hold: Some(hold),
            until_response: policy.ends_at_response(),
        }
    }
}

impl<F: Future<Output = Result<R, E>>, R, E> Future for WithSlot<F> {
    type Output = Outcome<Policy, R, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let output = ready!(this.handler.poll(context));
        let hold = this.hold.take().filter(|_| !*this.until_response);
        Poll::Ready(Ok(output.map(|response| (response, hold))))
    }
}
