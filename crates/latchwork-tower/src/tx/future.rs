use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use latchwork_http::{
    Rejection, ResponseFormat, TxLockPolicy, TxProvider,
    tx::{OpenTx, TxAttempt},
};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::work::InTx;
use crate::{
    OnDisconnect, PolicyBody, RequestHead,
    admission::{Admission, Admitted},
};

type Inner<S, B, F, P> = Admitted<TxLockPolicy<RequestHead, P>, S, B, InTx<F, P>>;

pin_project! {
    /// The future of a [`TxLockService`](super::TxLockService).
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the handler and then has the transaction rolled back, also one that has only been asked for.
    /// With [`OnDisconnect::Complete`] a handler that runs is left to its task, which ends the transaction as if nobody
    /// had left. A COMMIT that was sent goes on.
    pub struct TxLockFuture<S, B, P>
    where
        S: Service<Request<B>>,
        P: TxProvider,
    {
        #[pin]
        inner: Inner<S, B, S::Future, P>,
    }
}

impl<S, B, P> TxLockFuture<S, B, P>
where
    S: Service<Request<B>>,
    P: TxProvider,
{
    pub(super) const fn new(inner: Inner<S, B, S::Future, P>) -> Self {
        Self { inner }
    }
}

impl<P: TxProvider> Admission for TxLockPolicy<RequestHead, P> {
    type Grant = OpenTx<P>;
    type Attempt = TxAttempt<P>;
    type Hold = OpenTx<P>;
    type Rest = ();

    fn attempt(&self, head: &RequestHead) -> Result<Option<TxAttempt<P>>, Rejection> {
        self.attempt(head)
    }

    fn admit(&self, open: OpenTx<P>, head: &mut RequestHead) -> OpenTx<P> {
        head.insert(open.slot().clone());
        open
    }

    fn disconnect(&self) -> OnDisconnect {
        self.disconnect()
    }

    fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.respond(rejection, format)
    }
}

impl<S, B, P, R> Future for TxLockFuture<S, B, P>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    P: TxProvider,
    R: Body + Send + 'static,
{
    type Output = Result<Response<PolicyBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(context)
    }
}

impl<S, B, P> fmt::Debug for TxLockFuture<S, B, P>
where
    S: Service<Request<B>>,
    P: TxProvider,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxLockFuture").finish_non_exhaustive()
    }
}
