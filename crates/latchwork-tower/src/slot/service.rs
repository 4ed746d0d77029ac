use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use latchwork_http::SlotPolicy;
use tower_service::Service;

use super::{SlotBody, SlotFuture, SlotLayer};
use crate::{RequestHead, admission::Admitted, inner::inner_accessors};

/// The service made by a [`SlotLayer`].
///
/// Being ready is the inner service's affair, and reserves no slot. The inner service's futures have to be `Send` and
/// `'static`, so that they can finish in a task when the client has left.
#[derive(Clone, Debug)]
pub struct SlotService<S> {
    inner: S,
    policy: Arc<SlotPolicy<RequestHead>>,
}

impl<S> SlotService<S> {
    pub(super) const fn new(inner: S, policy: Arc<SlotPolicy<RequestHead>>) -> Self {
        Self { inner, policy }
    }

    /// The layer that makes services like this one.
    #[must_use]
    pub fn layer(&self) -> SlotLayer {
        SlotLayer::from((*self.policy).clone())
    }

    inner_accessors!();
}

impl<S, B, R> Service<Request<B>> for SlotService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    R: Body + Send + 'static,
    R::Data: From<Bytes>,
{
    type Response = Response<SlotBody<R>>;
    type Error = S::Error;
    type Future = SlotFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        SlotFuture::new(Admitted::call(&mut self.inner, &self.policy, request))
    }
}
