use std::{
    fmt,
    future::{Ready, ready},
    sync::Arc,
    time::Duration,
};

use actix_web::{
    Error,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use bytes::Bytes;
use http::Response;
use latchwork_core::Locks;
use latchwork_http::{
    ExtractKey, IdempotencyPolicy, OnDisconnect, Rejection, ResponseView, SetupError, tx::TxProvider,
};

use crate::{PolicyService, RequestHead};

/// Works on each `Idempotency-Key` once, and answers those who repeat it with the first response.
///
/// The handler's own writes, made by the request's transaction, and the response that is kept commit together before the
/// response leaves. Handlers find the transaction as with [`TxLockMiddleware`](crate::TxLockMiddleware).
///
/// Request bodies are read whole before the handler runs, which finds them byte for byte, whatever extractor it uses. What
/// a middleware inside ends with an error is not kept and rolled back, whatever status the error has.
///
/// Records are kept in the table `latchwork.idempotency`.
///
/// # Examples
///
/// ```
/// use actix_web::{App, HttpResponse, error::ErrorInternalServerError, web};
/// use latchwork_actix::{IdempotencyMiddleware, LockedTx, TxProvider, key::header};
///
/// async fn pay<P: TxProvider>(mut tx: LockedTx<P::Tx>) -> actix_web::Result<HttpResponse> {
///     let pay = "INSERT INTO payments (amount) VALUES (5)";
///     P::query(&mut tx, pay, &[]).await.map_err(ErrorInternalServerError)?;
///     Ok(HttpResponse::Created().finish())
/// }
///
/// fn app<P: TxProvider>(provider: P) -> Result<(), Box<dyn std::error::Error>> {
///     // Made once, and cloned into each worker's app. The header stands for who was authenticated.
///     let once = IdempotencyMiddleware::<P>::new(provider, header("x-user"))?;
///     let app = App::new()
///         .service(web::resource("/payments").wrap(once.clone()).route(web::post().to(pay::<P>)));
///     # drop(app);
///     Ok(())
/// }
/// ```
pub struct IdempotencyMiddleware<P> {
    /// Copied on write, so that all workers share one.
    policy: Arc<IdempotencyPolicy<RequestHead, P>>,
}

impl<P: TxProvider> IdempotencyMiddleware<P> {
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

impl<P> From<IdempotencyPolicy<RequestHead, P>> for IdempotencyMiddleware<P> {
    fn from(policy: IdempotencyPolicy<RequestHead, P>) -> Self {
        Self {
            policy: Arc::new(policy),
        }
    }
}

impl<S, B, P> Transform<S, ServiceRequest> for IdempotencyMiddleware<P>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
    P: TxProvider,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = PolicyService<S, IdempotencyPolicy<RequestHead, P>>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(PolicyService::new(service, Arc::clone(&self.policy))))
    }
}

/// By hand, since the provider need not be `Clone` for it.
impl<P> Clone for IdempotencyMiddleware<P> {
    fn clone(&self) -> Self {
        Self {
            policy: Arc::clone(&self.policy),
        }
    }
}

impl<P> fmt::Debug for IdempotencyMiddleware<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyMiddleware")
            .field("policy", &self.policy)
            .finish()
    }
}
