use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use latchwork_http::{TxLockPolicy, TxProvider};
use tower_service::Service;

use super::{TxLockFuture, TxLockLayer};
use crate::{PolicyBody, RequestHead, admission::Admitted, inner::inner_accessors};

/// The service made by a [`TxLockLayer`].
///
/// Being ready is the inner service's affair, and opens no transaction. The inner service's futures have to be `Send`
/// and `'static`, so that they can finish in a task when the client has left.
pub struct TxLockService<S, P> {
    inner: S,
    policy: Arc<TxLockPolicy<RequestHead, P>>,
}

impl<S, P> TxLockService<S, P> {
    pub(super) const fn new(inner: S, policy: Arc<TxLockPolicy<RequestHead, P>>) -> Self {
        Self { inner, policy }
    }

    /// The layer that makes services like this one.
    #[must_use]
    pub fn layer(&self) -> TxLockLayer<P>
    where
        P: TxProvider,
    {
        TxLockLayer::from((*self.policy).clone())
    }

    inner_accessors!();
}

/// By hand, since the provider need not be `Clone` for it.
impl<S: Clone, P> Clone for TxLockService<S, P> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.policy))
    }
}

impl<S: fmt::Debug, P> fmt::Debug for TxLockService<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxLockService")
            .field("inner", &self.inner)
            .field("policy", &self.policy)
            .finish()
    }
}

impl<S, B, P, R> Service<Request<B>> for TxLockService<S, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    P: TxProvider,
    R: Body + Send + 'static,
    R::Data: From<Bytes>,
{
    type Response = Response<PolicyBody<R>>;
    type Error = S::Error;
    type Future = TxLockFuture<S, B, P>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        TxLockFuture::new(Admitted::call(&mut self.inner, &self.policy, request))
    }
}
