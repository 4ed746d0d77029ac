use std::sync::Arc;

use latchwork_http::IdempotencyPolicy;
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

latchwork_http::__wear_idempotency!(IdempotencyLayer, RequestHead);

impl<S, P> Layer<S> for IdempotencyLayer<P> {
    type Service = IdempotencyService<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, Arc::clone(&self.policy))
    }
}
