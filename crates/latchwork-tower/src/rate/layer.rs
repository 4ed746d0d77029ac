use std::sync::Arc;

use http::request::Parts;
use latchwork_http::RateLimitPolicy;
use tower_layer::Layer;

use super::RateLimitService;
use crate::RequestHead;

/// So many requests of one client in so much time, counted over all instances. Others get 429.
///
/// Handlers find the [`RateDecision`](latchwork_core::rate::RateDecision) in the request's extensions. Of stacked layers
/// each charges by itself, so one that refuses leaves what the outer ones have charged: give one layer several
/// [`Quotas`](latchwork_core::rate::Quotas) to charge all or none.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use latchwork_core::rate::{Quota, RateLimits};
/// use latchwork_tower::{RateLimitLayer, key::header};
///
/// # fn app() -> Result<Router, Box<dyn std::error::Error>> {
/// let quota = Quota::per_second(10)?.with_burst(20)?;
/// let layer = RateLimitLayer::new(RateLimits::in_memory(), ("search", header("x-api-key")), quota)?.name("search")?;
/// let app = Router::new().route("/search", get(|| async { "found" })).layer(layer);
/// # Ok(app)
/// # }
/// # app().unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    policy: Arc<RateLimitPolicy<RequestHead>>,
}

latchwork_http::__wear_rate_limit!(RateLimitLayer, RequestHead, Parts);

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimitService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimitService::new(inner, Arc::clone(&self.policy))
    }
}
