use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use actix_web::body::{BodySize, MessageBody};
use bytes::Bytes;
use latchwork_core::Permit;
use latchwork_http::Hold;
use pin_project_lite::pin_project;

pin_project! {
    /// A response's body with the slot of its request, which it gives up when it ends, fails, or is dropped.
    ///
    /// The body comes first: it is dropped while the slot is held.
    #[derive(Debug)]
    pub struct SlotBody<B> {
        #[pin]
        body: B,
        // What is still to come of a body of known length.
        left: Option<u64>,
        hold: Option<Hold<Permit>>,
    }
}

impl<B: MessageBody> SlotBody<B> {
    pub(super) fn new(body: B, hold: Option<Hold<Permit>>) -> Self {
        let left = match body.size() {
            BodySize::None => Some(0),
            BodySize::Sized(size) => Some(size),
            BodySize::Stream => None,
        };
        let hold = hold.filter(|_| left != Some(0));
        Self { body, left, hold }
    }
}

impl<B: MessageBody> MessageBody for SlotBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.project();
        let chunk = ready!(this.body.poll_next(context));
        match &chunk {
            Some(Ok(bytes)) => {
                *this.left = this.left.map(|left| left.saturating_sub(bytes.len() as u64));
                if *this.left == Some(0) {
                    *this.hold = None;
                }
            }
            Some(Err(_)) | None => *this.hold = None,
        }
        Poll::Ready(chunk)
    }
}
