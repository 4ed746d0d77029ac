//! A handler with its slot.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use latchwork_http::PermitHold;
use pin_project_lite::pin_project;

pin_project! {
    /// Carries the slot along with a handler, and hands it on with the handler's output.
    ///
    /// The handler comes first: whenever both are dropped, by a panic too, nothing of it runs without the slot.
    pub(super) struct WithSlot<F> {
        #[pin]
        handler: F,
        hold: Option<PermitHold>,
    }
}

impl<F> WithSlot<F> {
    pub(super) const fn new(handler: F, hold: PermitHold) -> Self {
        Self {
            handler,
            hold: Some(hold),
        }
    }
}

impl<F: Future> Future for WithSlot<F> {
    type Output = (F::Output, Option<PermitHold>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let output = ready!(this.handler.poll(context));
        Poll::Ready((output, this.hold.take()))
    }
}
