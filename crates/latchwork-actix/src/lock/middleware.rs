use std::{
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
use latchwork_core::{Locks, WaitMethod};
use latchwork_http::{ExtractKey, LockMode, LockPolicy, OnDisconnect, Rejection, SetupError};

use crate::{PolicyService, RequestHead};

/// Holds a key while a request is handled, so that requests for one key do not run at the same time, whichever
/// instance of the service they reach.
///
/// The key is acquired before the inner service is called, and given up when the inner service's future ends: done,
/// panicked, or dropped because the client has left, which actix-web does not always see at once: see
/// [`OnDisconnect`]. The response waits, for at most a second, until the lock server has
/// said that the key is free: a client that goes on to another instance is not kept out by its own last request. The
/// response's body is sent without the lock.
///
/// | what | answer |
/// |---|---|
/// | others hold the key | 409 with `Retry-After` |
/// | the lock server can't be reached or does not answer | 503, never 409 |
/// | the lock is lost while the handler runs | the handler is cancelled, 503 |
/// | the request has no usable key | 400 |
///
/// Refusals are responses, so that middleware outside, such as CORS, sees and changes them. Only for a lock that is lost
/// it is an error that answers with 503, since the request went with its handler.
///
/// While the connection to the lock server is only in doubt the handler runs on, and can ask whether it may go ahead: it
/// has the extractor [`HeldLock`](crate::HeldLock).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use actix_web::{App, web};
/// use latchwork_actix::{LockMiddleware, key::param};
/// use latchwork_core::Locks;
///
/// # fn app(locks: Locks) -> Result<(), Box<dyn std::error::Error>> {
/// // Made once, and cloned into each worker's app.
/// let one_at_a_time = LockMiddleware::new(locks, ("order", param("id")))?.wait(Duration::from_millis(500));
/// let app = App::new().service(
///     web::resource("/orders/{id}/charge").wrap(one_at_a_time.clone()).route(web::post().to(|| async { "charged" })),
/// );
/// # drop(app);
/// # Ok(())
/// # }
/// # app(Locks::in_memory()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct LockMiddleware {
    /// Copied on write, so that all workers share one.
    policy: Arc<LockPolicy<RequestHead>>,
}

impl LockMiddleware {
    /// One exclusive try for the key that is extracted from each request: see [`key`](crate::key).
    ///
    /// # Errors
    ///
    /// [`SetupError`] if the extractor can never work.
    pub fn new(locks: Locks, key: impl ExtractKey<RequestHead>) -> Result<Self, SetupError> {
        LockPolicy::new(locks, key).map(Self::from)
    }

    /// Sets how requests hold the key. Default: exclusive.
    #[must_use]
    pub fn mode(self, mode: LockMode) -> Self {
        self.map(|policy| policy.mode(mode))
    }

    /// Waits for a key that others hold, for at most `limit`. Default: one try.
    #[must_use]
    pub fn wait(self, limit: Duration) -> Self {
        self.map(|policy| policy.wait(limit))
    }

    /// As [`wait`](Self::wait), and says how to wait.
    #[must_use]
    pub fn wait_by(self, limit: Duration, method: WaitMethod) -> Self {
        self.map(|policy| policy.wait_by(limit, method))
    }

    /// Sets how long the lock server may take over the answer to a try, before the request is answered with 503.
    /// Default: 5 s. A middleware that waits has its own limit instead.
    #[must_use]
    pub fn answer_within(self, limit: Duration) -> Self {
        self.map(|policy| policy.answer_within(limit))
    }

    /// Sets whether a handler is cancelled, and its request answered with 503, when its lock is lost while it runs:
    /// others may hold it from then on. Default: yes. Otherwise the handler has [`HeldLock::lost`](latchwork_http::HeldLock::lost).
    #[must_use]
    pub fn cancel_on_loss(self, cancel: bool) -> Self {
        self.map(|policy| policy.cancel_on_loss(cancel))
    }

    /// Sets what becomes of a handler whose client leaves. Default: it is cancelled.
    #[must_use]
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> Self {
        self.map(|policy| policy.on_disconnect(on_disconnect))
    }

    /// Sets after how long those who are refused may ask again. Default: 1 s. The header holds whole seconds.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Self {
        self.map(|policy| policy.retry_after(after))
    }

    /// Locks CORS preflights too. Default: they pass without a lock.
    #[must_use]
    pub fn include_preflights(self) -> Self {
        self.map(LockPolicy::include_preflights)
    }

    /// Replaces the answers to those who are refused. The closure is given the usual answer, to keep or to change.
    #[must_use]
    pub fn on_reject(
        self,
        replace: impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.map(|policy| policy.on_reject(replace))
    }

    fn map(self, change: impl FnOnce(LockPolicy<RequestHead>) -> LockPolicy<RequestHead>) -> Self {
        let policy = Arc::try_unwrap(self.policy).unwrap_or_else(|shared| (*shared).clone());
        Self::from(change(policy))
    }
}

impl From<LockPolicy<RequestHead>> for LockMiddleware {
    fn from(policy: LockPolicy<RequestHead>) -> Self {
        Self {
            policy: Arc::new(policy),
        }
    }
}

impl<S, B> Transform<S, ServiceRequest> for LockMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = PolicyService<S, LockPolicy<RequestHead>>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(PolicyService::new(service, Arc::clone(&self.policy))))
    }
}
