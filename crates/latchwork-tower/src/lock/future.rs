use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use latchwork_core::Guard;
use latchwork_http::{Hold, LockAttempt, LockPolicy, OnDisconnect, Rejection, ResponseFormat};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{HeldLock, work::UnderLock};
use crate::{
    PolicyBody, RequestHead,
    admission::{Admission, Admitted},
};

type Inner<S, B, F> = Admitted<LockPolicy<RequestHead>, S, B, UnderLock<F>>;

pin_project! {
    /// The future of a [`LockService`](super::LockService).
    ///
    /// # Cancel safety
    ///
    /// Dropping it while it waits for the lock leaves nothing held. Dropping it later drops the handler and then gives
    /// the lock up, or, with [`OnDisconnect::Complete`], leaves the handler to its task.
    pub struct LockFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        inner: Inner<S, B, S::Future>,
    }
}

impl<S, B> LockFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) const fn new(inner: Inner<S, B, S::Future>) -> Self {
        Self { inner }
    }
}

impl Admission for LockPolicy<RequestHead> {
    type Grant = Guard;
    type Attempt = LockAttempt;
    type Hold = Hold<Guard>;
    type Rest = ();

    fn attempt(&self, head: &RequestHead) -> Result<Option<LockAttempt>, Rejection> {
        self.attempt(head)
    }

    fn admit(&self, guard: Guard, head: &mut RequestHead) -> Hold<Guard> {
        HeldLock::put(guard, head)
    }

    fn disconnect(&self) -> OnDisconnect {
        self.disconnect()
    }

    fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.respond(rejection, format)
    }
}

impl<S, B, R> Future for LockFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Body + Send + 'static,
{
    type Output = Result<Response<PolicyBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(context)
    }
}

impl<S, B> fmt::Debug for LockFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockFuture").finish_non_exhaustive()
    }
}
