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
use latchwork_core::{Locks, Slots};
use latchwork_http::{Capacity, ExtractKey, OnDisconnect, Rejection, SetupError, SlotPolicy};

use super::SlotBody;
use crate::{PolicyService, RequestHead};

/// Lets at most so many requests in at once, over all instances of the service.
///
/// A request keeps its slot until its response's body was sent, has failed, or was dropped, so that a streamed answer
/// counts while it streams. A handler that goes on elsewhere, as with a socket, takes the permit with it: see
/// the extractor [`HeldPermit`](crate::HeldPermit).
///
/// | what | answer |
/// |---|---|
/// | all slots are taken | 503 for [`global`](Self::global), 429 for [`per`](Self::per), with `Retry-After` |
/// | the lock server can't be reached or does not answer | 503, never 429 |
/// | the request has no usable key | 400 |
///
/// Slots are a limit on load, not on who may write: a request whose slot is lost with its session runs on, and so
/// there can be more than the limit for a while. Use [`LockMiddleware`](crate::LockMiddleware) where that must not be.
///
/// # Examples
///
/// ```
/// use actix_web::{App, web};
/// use latchwork_actix::{SlotMiddleware, key::header};
/// use latchwork_core::Locks;
///
/// # fn app(locks: Locks) -> Result<(), Box<dyn std::error::Error>> {
/// // Made once, and cloned into each worker's app.
/// let five_in_all = SlotMiddleware::global(locks.slots("ai", 5)?);
/// let two_a_client = SlotMiddleware::per(locks, ("ai client", header("x-api-key")), 2)?;
/// // The outermost last: the client's own limit is looked at before the common one.
/// let app = App::new().service(
///     web::resource("/ai")
///         .wrap(five_in_all.clone())
///         .wrap(two_a_client.clone())
///         .route(web::get().to(|| async { "slow" })),
/// );
/// # drop(app);
/// # Ok(())
/// # }
/// # app(Locks::in_memory()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct SlotMiddleware {
    policy: Arc<SlotPolicy<RequestHead>>,
}

impl SlotMiddleware {
    /// One pool for all requests. Full is 503: the service is at its capacity.
    #[must_use]
    pub fn global(slots: Slots) -> Self {
        SlotPolicy::global(slots).into()
    }

    /// A pool of `limit` slots for each key that is extracted from requests, such as one for each client. Full is 429.
    ///
    /// Put a text first in the key: pools of one key are one pool, and two middlewares that give it different limits get in
    /// each other's way.
    ///
    /// # Errors
    ///
    /// [`SetupError`] if the extractor can never work, or for a limit of zero or above
    /// [`MAX_SLOTS`](latchwork_core::slots::MAX_SLOTS).
    pub fn per(locks: Locks, key: impl ExtractKey<RequestHead>, limit: u32) -> Result<Self, SetupError> {
        SlotPolicy::per(locks, key, limit).map(Self::from)
    }

    /// Sets whose limit it is, and so the status of those who are refused. Default: that of the constructor.
    #[must_use]
    pub fn capacity(self, capacity: Capacity) -> Self {
        self.map(|policy| policy.capacity(capacity))
    }

    /// Waits for a free slot, for at most `limit`. Default: one try.
    #[must_use]
    pub fn wait(self, limit: Duration) -> Self {
        self.map(|policy| policy.wait(limit))
    }

    /// Sets how long the lock server may take over the answer to a try, before the request is answered with 503.
    /// Default: 5 s. A middleware that waits has its own limit instead.
    #[must_use]
    pub fn answer_within(self, limit: Duration) -> Self {
        self.map(|policy| policy.answer_within(limit))
    }

    /// Gives the slot up when the handler has returned its response. Default: when the body was sent, has failed, or
    /// was dropped. So slow readers do not fill the slots, but streamed work runs on without one.
    #[must_use]
    pub fn until_response(self) -> Self {
        self.map(SlotPolicy::until_response)
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

    /// Counts CORS preflights too. Default: they pass without a slot.
    #[must_use]
    pub fn include_preflights(self) -> Self {
        self.map(SlotPolicy::include_preflights)
    }

    /// Replaces the answers to those who are refused. The closure is given the usual answer, to keep or to change.
    #[must_use]
    pub fn on_reject(
        self,
        replace: impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.map(|policy| policy.on_reject(replace))
    }

    fn map(self, change: impl FnOnce(SlotPolicy<RequestHead>) -> SlotPolicy<RequestHead>) -> Self {
        let policy = Arc::try_unwrap(self.policy).unwrap_or_else(|shared| (*shared).clone());
        Self::from(change(policy))
    }
}

impl From<SlotPolicy<RequestHead>> for SlotMiddleware {
    fn from(policy: SlotPolicy<RequestHead>) -> Self {
        Self {
            policy: Arc::new(policy),
        }
    }
}

impl<S, B> Transform<S, ServiceRequest> for SlotMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<SlotBody<B>>>;
    type Error = Error;
    type Transform = PolicyService<S, SlotPolicy<RequestHead>>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(PolicyService::new(service, Arc::clone(&self.policy))))
    }
}
