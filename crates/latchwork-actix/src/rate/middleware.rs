use std::{
    future::{Ready, ready},
    sync::Arc,
};

use actix_web::{
    Error, HttpRequest,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
};
use latchwork_http::RateLimitPolicy;

use crate::{PolicyService, RequestHead};

/// So many requests of one client in so much time, counted over all workers and instances. Others get 429.
///
/// Handlers find the [`RateDecision`](latchwork_core::rate::RateDecision) in the request's extensions. Of several
/// middlewares each charges by itself, so one that refuses leaves what the outer ones have charged: give one middleware
/// several [`Quotas`](latchwork_core::rate::Quotas) to charge all or none.
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

latchwork_http::__wear_rate_limit!(RateLimitMiddleware, RequestHead, HttpRequest);

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
