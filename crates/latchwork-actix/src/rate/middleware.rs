use std::{
    future::{Ready, ready},
    sync::Arc,
};

use actix_web::{
    Error, HttpRequest,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use bytes::Bytes;
use http::Response;
use latchwork_core::rate::{Quotas, RateLimits};
use latchwork_http::{ExtractKey, RateLimitPolicy, Rejection, SetupError, rate::RateHeaders};

use crate::{PolicyService, RequestHead};

/// So many requests of one client in so much time, counted over all workers and instances. Others get 429.
///
/// Handlers find the [`RateDecision`](latchwork_core::rate::RateDecision) in the request's extensions. Of several
/// middlewares each charges by itself, so one that refuses leaves what the outer ones have charged: give one middleware
/// several [`Quotas`] to charge all or none.
///
/// Refusals are responses, so that middleware outside, such as CORS, sees and changes them. What a middleware inside
/// ends with an error says nothing of the limit.
///
/// # Examples
///
/// ```
/// use actix_web::{App, web};
/// use latchwork_actix::{RateLimitMiddleware, key::header};
/// use latchwork_core::rate::{Quota, RateLimits};
///
/// # fn app() -> Result<(), Box<dyn std::error::Error>> {
/// // Made once, and cloned into each worker's app.
/// let quota = Quota::per_second(10)?.with_burst(20)?;
/// let limited =
///     RateLimitMiddleware::new(RateLimits::in_memory(), ("search", header("x-api-key")), quota)?.name("search")?;
/// let app = App::new().service(
///     web::resource("/search").wrap(limited.clone()).route(web::get().to(|| async { "found" })),
/// );
/// # drop(app);
/// # Ok(())
/// # }
/// # app().unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitMiddleware {
    /// Copied on write, so that all workers share one.
    policy: Arc<RateLimitPolicy<RequestHead>>,
}

impl RateLimitMiddleware {
    /// As [`RateLimitPolicy::new`].
    ///
    /// # Errors
    ///
    /// [`SetupError`] if the extractor can never work.
    pub fn new(
        rates: RateLimits,
        key: impl ExtractKey<RequestHead>,
        quotas: impl Into<Quotas>,
    ) -> Result<Self, SetupError> {
        RateLimitPolicy::new(rates, key, quotas).map(Self::from)
    }

    /// As [`RateLimitPolicy::name`].
    ///
    /// # Errors
    ///
    /// [`SetupError::LimitName`] for a name that no header can hold.
    pub fn name(self, name: &str) -> Result<Self, SetupError> {
        Arc::unwrap_or_clone(self.policy).name(name).map(Self::from)
    }

    /// As [`RateLimitPolicy::cost_by`]. The closure must not keep a clone of the request.
    #[must_use]
    pub fn cost_by(self, cost: impl Fn(&HttpRequest) -> u32 + Send + Sync + 'static) -> Self {
        self.map(|policy| policy.cost_by(move |head| cost(head)))
    }

    /// As [`RateLimitPolicy::quotas_by`]. The closure must not keep a clone of the request.
    #[must_use]
    pub fn quotas_by(self, quotas: impl Fn(&HttpRequest) -> Option<Quotas> + Send + Sync + 'static) -> Self {
        self.map(|policy| policy.quotas_by(move |head| quotas(head)))
    }

    /// As [`RateLimitPolicy::shadow`].
    #[must_use]
    pub fn shadow(self) -> Self {
        self.map(RateLimitPolicy::shadow)
    }

    /// As [`RateLimitPolicy::headers`].
    #[must_use]
    pub fn headers(self, headers: RateHeaders) -> Self {
        self.map(|policy| policy.headers(headers))
    }

    /// As [`RateLimitPolicy::include_preflights`].
    #[must_use]
    pub fn include_preflights(self) -> Self {
        self.map(RateLimitPolicy::include_preflights)
    }

    /// As [`RateLimitPolicy::on_reject`].
    #[must_use]
    pub fn on_reject(
        self,
        replace: impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.map(|policy| policy.on_reject(replace))
    }

    fn map(self, change: impl FnOnce(RateLimitPolicy<RequestHead>) -> RateLimitPolicy<RequestHead>) -> Self {
        change(Arc::unwrap_or_clone(self.policy)).into()
    }
}

impl From<RateLimitPolicy<RequestHead>> for RateLimitMiddleware {
    fn from(policy: RateLimitPolicy<RequestHead>) -> Self {
        Self {
            policy: Arc::new(policy),
        }
    }
}

impl<S, B> Transform<S, ServiceRequest> for RateLimitMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = PolicyService<S, RateLimitPolicy<RequestHead>>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(PolicyService::new(service, Arc::clone(&self.policy))))
    }
}
