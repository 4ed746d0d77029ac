use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use latchwork_http::{IdempotencyPolicy, ResponseFormat, tx::TxProvider};
use tower_service::Service;

use super::{IdempotencyLayer, exchange::Exchange};
use crate::{
    PolicyBody, RequestHead,
    inner::{inner_accessors, take_ready},
};

/// What [`IdempotencyLayer`] makes of a service.
pub struct IdempotencyService<S, P> {
    inner: S,
    policy: Arc<IdempotencyPolicy<RequestHead, P>>,
}

impl<S, P> IdempotencyService<S, P> {
    pub(super) const fn new(inner: S, policy: Arc<IdempotencyPolicy<RequestHead, P>>) -> Self {
        Self { inner, policy }
    }

    /// The layer that makes services like this one.
    #[must_use]
    pub fn layer(&self) -> IdempotencyLayer<P>
    where
        P: Clone,
    {
        IdempotencyLayer::from((*self.policy).clone())
    }

    inner_accessors!();
}

impl<S, B, R, P> Service<Request<B>> for IdempotencyService<S, P>
where
    S: Service<Request<PolicyBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    R: Body + Send + 'static,
    R::Data: From<Bytes> + Send,
    P: TxProvider,
{
    type Response = Response<PolicyBody<R>>;
    type Error = S::Error;
    type Future = IdempotencyFuture<R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut ready = take_ready(&mut self.inner);
        let (head, body) = RequestHead::of(request);
        let format = ResponseFormat::of(&head);
        let request = self.policy.request(&head, head.uri.query());
        IdempotencyFuture(match request {
            Ok(Some(request)) => {
                let exchange = Exchange::new(Arc::clone(&self.policy), request, format);
                Box::pin(exchange.carry_out(ready, head, body))
            }
            Ok(None) => {
                let handler = ready.call(head.with_body(body).map(PolicyBody::of));
                Box::pin(async move { handler.await.map(PolicyBody::inner) })
            }
            Err(rejection) => {
                let refusal = PolicyBody::refusal(self.policy.respond(&rejection, format));
                Box::pin(async move { Ok(refusal) })
            }
        })
    }
}

impl<S: Clone, P> Clone for IdempotencyService<S, P> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.policy))
    }
}

impl<S: fmt::Debug, P> fmt::Debug for IdempotencyService<S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService")
            .field("inner", &self.inner)
            .field("policy", &self.policy)
            .finish()
    }
}

/// The answer to a request that may be sent again.
#[must_use = "futures do nothing unless awaited"]
pub struct IdempotencyFuture<R, E>(Pin<Box<dyn Future<Output = Answer<R, E>> + Send>>);

type Answer<R, E> = Result<Response<PolicyBody<R>>, E>;

impl<R, E> Future for IdempotencyFuture<R, E> {
    type Output = Result<Response<PolicyBody<R>>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<R, E> fmt::Debug for IdempotencyFuture<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyFuture").finish_non_exhaustive()
    }
}
