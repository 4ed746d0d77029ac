use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use latchwork_core::Permit;
use latchwork_http::Hold;
use pin_project_lite::pin_project;

use crate::{PolicyBody, admission::Carries};

pin_project! {
    /// A response's body with the slot of its request, which it gives up when it ends, fails, or is dropped.
    ///
    /// The body comes first: it is dropped while the slot is held.
    #[derive(Debug)]
    pub struct SlotBody<B> {
        #[pin]
        body: PolicyBody<B>,
        hold: Option<Hold<Permit>>,
    }
}

impl<B> Carries<B, Option<Hold<Permit>>> for SlotBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    fn new(body: PolicyBody<B>, rest: Option<Option<Hold<Permit>>>) -> Self {
        let hold = rest.flatten().filter(|_| !body.is_end_stream());
        Self { body, hold }
    }
}

/// Layers outside, such as CORS, answer with an empty body of their own.
impl<B: Default> Default for SlotBody<B> {
    fn default() -> Self {
        Self {
            body: PolicyBody::default(),
            hold: None,
        }
    }
}

impl<B> Body for SlotBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        let goes_on = matches!(&frame, Some(Ok(_))) && !this.body.is_end_stream();
        if !goes_on {
            *this.hold = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
