use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use latchwork_core::Locks;
use latchwork_http::{
    ExtractKey, IdempotencyPolicy, OnDisconnect, Rejection, ResponseView, SetupError, tx::TxProvider,
};
use tower_layer::Layer;

use super::IdempotencyService;
use crate::RequestHead;

/// Works on each `Idempotency-Key` once, and answers those who repeat it with the first response.
///
/// The handler's own writes, made by the request's transaction, and the response that is kept commit together before the
/// response leaves. Handlers find the transaction as with [`TxLockLayer`](crate::TxLockLayer).
///
/// Request bodies are read whole before the handler runs; the inner service is given them as
/// [`PolicyBody`](crate::PolicyBody).
///
/// Records are kept in the table `latchwork.idempotency`.
pub struct IdempotencyLayer<P> {
    policy: Arc<IdempotencyPolicy<RequestHead, P>>,
}

impl<P: TxProvider> IdempotencyLayer<P> {
    /// As [`IdempotencyPolicy::new`].
    ///
    /// # Errors
    ///
    /// [`SetupError`] if the extractor can never work.
    pub fn new(provider: impl Into<P>, principal: impl ExtractKey<RequestHead>) -> Result<Self, SetupError> {
        IdempotencyPolicy::new(provider, principal).map(Self::from)
    }

    /// As [`IdempotencyPolicy::optional`].
    #[must_use]
    pub fn optional(self) -> Self {
        self.map(IdempotencyPolicy::optional)
    }

    /// As [`IdempotencyPolicy::methods`].
    #[must_use]
    pub fn methods<'a>(self, methods: impl IntoIterator<Item = &'a str>) -> Self {
        self.map(|policy| policy.methods(methods))
    }

    /// As [`IdempotencyPolicy::external`].
    #[must_use]
    pub fn external(self, locks: Locks) -> Self {
        self.map(|policy| policy.external(locks))
    }

    /// As [`IdempotencyPolicy::wait`].
    #[must_use]
    pub fn wait(self, limit: Duration) -> Self {
        self.map(|policy| policy.wait(limit))
    }

    /// As [`IdempotencyPolicy::answer_within`].
    #[must_use]
    pub fn answer_within(self, limit: Duration) -> Self {
        self.map(|policy| policy.answer_within(limit))
    }

    /// As [`IdempotencyPolicy::commit_when`].
    #[must_use]
    pub fn commit_when(self, commits: impl Fn(&dyn ResponseView) -> bool + Send + Sync + 'static) -> Self {
        self.map(|policy| policy.commit_when(commits))
    }

    /// As [`IdempotencyPolicy::keep_header`].
    ///
    /// # Errors
    ///
    /// [`SetupError::KeptHeader`] for `Set-Cookie` and for what is no name of a header.
    pub fn keep_header(self, name: &str) -> Result<Self, SetupError> {
        let policy = Arc::unwrap_or_clone(self.policy);
        policy.keep_header(name).map(Self::from)
    }

    /// As [`IdempotencyPolicy::max_request_body`].
    #[must_use]
    pub fn max_request_body(self, bytes: usize) -> Self {
        self.map(|policy| policy.max_request_body(bytes))
    }

    /// As [`IdempotencyPolicy::max_response_body`].
    #[must_use]
    pub fn max_response_body(self, bytes: usize) -> Self {
        self.map(|policy| policy.max_response_body(bytes))
    }

    /// As [`IdempotencyPolicy::retention`].
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        self.map(|policy| policy.retention(retention))
    }

    /// As [`IdempotencyPolicy::on_disconnect`].
    #[must_use]
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> Self {
        self.map(|policy| policy.on_disconnect(on_disconnect))
    }

    /// As [`IdempotencyPolicy::retry_after`].
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Self {
        self.map(|policy| policy.retry_after(after))
    }

    /// As [`IdempotencyPolicy::on_reject`].
    #[must_use]
    pub fn on_reject(
        self,
        replace: impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.map(|policy| policy.on_reject(replace))
    }

    fn map(self, change: impl FnOnce(IdempotencyPolicy<RequestHead, P>) -> IdempotencyPolicy<RequestHead, P>) -> Self {
        change(Arc::unwrap_or_clone(self.policy)).into()
    }
}

impl<P> From<IdempotencyPolicy<RequestHead, P>> for IdempotencyLayer<P> {
    fn from(policy: IdempotencyPolicy<RequestHead, P>) -> Self {
        Self {
            policy: Arc::new(policy),
        }
    }
}

impl<S, P> Layer<S> for IdempotencyLayer<P> {
    type Service = IdempotencyService<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::clone(&self.policy))
    }
}

impl<P> Clone for IdempotencyLayer<P> {
    fn clone(&self) -> Self {
        Self {
            policy: Arc::clone(&self.policy),
        }
    }
}

impl<P> fmt::Debug for IdempotencyLayer<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("policy", &self.policy)
            .finish()
    }
}
