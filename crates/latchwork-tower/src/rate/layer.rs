use std::sync::Arc;

use bytes::Bytes;
use http::{Response, request::Parts};
use latchwork_core::rate::{Quotas, RateLimits};
use latchwork_http::{ExtractKey, RateLimitPolicy, Rejection, SetupError, rate::RateHeaders};
use tower_layer::Layer;

use super::RateLimitService;
use crate::RequestHead;

/// So many requests of one client in so much time, counted over all instances. Others get 429.
///
/// Handlers find the [`RateDecision`](latchwork_core::rate::RateDecision) in the request's extensions. Of stacked layers
/// each charges by itself, so one that refuses leaves what the outer ones have charged: give one layer several
/// [`Quotas`] to charge all or none.
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

impl RateLimitLayer {
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

    /// As [`RateLimitPolicy::cost_by`].
    #[must_use]
    pub fn cost_by(self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Self {
        self.map(|policy| policy.cost_by(move |head| cost(head)))
    }

    /// As [`RateLimitPolicy::quotas_by`].
    #[must_use]
    pub fn quotas_by(self, quotas: impl Fn(&Parts) -> Option<Quotas> + Send + Sync + 'static) -> Self {
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

impl From<RateLimitPolicy<RequestHead>> for RateLimitLayer {
    fn from(policy: RateLimitPolicy<RequestHead>) -> Self {
        Self {
            policy: Arc::new(policy),
        }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimitService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimitService::new(inner, Arc::clone(&self.policy))
    }
}
