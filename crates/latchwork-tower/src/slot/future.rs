use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use latchwork_core::Permit;
use latchwork_http::{Hold, OnDisconnect, Rejection, ResponseFormat, SlotAttempt, SlotPolicy};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{HeldPermit, SlotBody, work::WithSlot};
use crate::{
    RequestHead,
    admission::{Admission, Admitted},
};

type Inner<S, B, F> = Admitted<SlotPolicy<RequestHead>, S, B, WithSlot<F>>;

pin_project! {
    /// The future of a [`SlotService`](super::SlotService).
    ///
    /// # Cancel safety
    ///
    /// Dropping it while it waits for a slot leaves nothing held. Dropping it later drops the handler and then gives
    /// the slot up, or, with [`OnDisconnect::Complete`], leaves the handler to its task.
    pub struct SlotFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        inner: Inner<S, B, S::Future>,
    }
}

impl<S, B> SlotFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn new(inner: Inner<S, B, S::Future>) -> Self {
        Self { inner }
    }
}

impl Admission for SlotPolicy<RequestHead> {
    type Grant = Permit;
    type Attempt = SlotAttempt;
    type Hold = Hold<Permit>;
    /// The body keeps the slot, unless that ends with the response.
    type Rest = Option<Hold<Permit>>;

    fn attempt(&self, head: &RequestHead) -> Result<Option<SlotAttempt>, Rejection> {
        self.attempt(head)
    }

    fn admit(&self, permit: Permit, head: &mut RequestHead) -> Hold<Permit> {
        HeldPermit::put(permit, head)
    }

    fn disconnect(&self) -> OnDisconnect {
        self.disconnect()
    }

    fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.respond(rejection, format)
    }
}

impl<S, B, R> Future for SlotFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Body + Send + 'static,
    R::Data: From<Bytes>,
{
    type Output = Result<Response<SlotBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(context)
    }
}

impl<S, B> fmt::Debug for SlotFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotFuture").finish_non_exhaustive()
    }
}
