use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use http::Response;
use latchwork_core::rate::{Quotas, RateLimits};

use super::{
    RateHeaders,
    check::{RateCheck, Terms},
};
use crate::{ExtractKey, Rejection, RequestView, ResponseFormat, SetupError, key::key_of, refusal::Refusal};

/// So many requests of one client in so much time: whom a request is charged to, how much, and what becomes of those who
/// are over the limit.
///
/// `V` is the request as the framework shows it.
pub struct RateLimitPolicy<V> {
    rates: RateLimits,
    key: Arc<dyn ExtractKey<V>>,
    quotas: Quotas,
    quotas_of: Option<QuotasOf<V>>,
    cost_of: Option<CostOf<V>>,
    terms: Arc<Terms>,
    refusal: Refusal,
}

type QuotasOf<V> = Arc<dyn Fn(&V) -> Option<Quotas> + Send + Sync>;
type CostOf<V> = Arc<dyn Fn(&V) -> u32 + Send + Sync>;

impl<V: 'static> RateLimitPolicy<V> {
    /// Charges each request one unit, to the key that is extracted from it.
    ///
    /// # Errors
    ///
    /// [`SetupError`] if the extractor can never work.
    pub fn new(rates: RateLimits, key: impl ExtractKey<V>, quotas: impl Into<Quotas>) -> Result<Self, SetupError> {
        key.validate()?;
        Ok(Self {
            rates,
            key: Arc::new(key),
            quotas: quotas.into(),
            quotas_of: None,
            cost_of: None,
            terms: Arc::new(Terms {
                name: "default".into(),
                headers: RateHeaders::default(),
                shadow: false,
                told: OnceLock::new(),
            }),
            refusal: Refusal::default(),
        })
    }

    /// Names the limit in the headers of responses. Default: `default`.
    ///
    /// # Errors
    ///
    /// [`SetupError::LimitName`] for a name that is empty or holds something else than letters, digits, `-`, `_`, `.`
    /// and `/`.
    pub fn name(mut self, name: &str) -> Result<Self, SetupError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_plain) {
            return Err(SetupError::LimitName { name: name.to_owned() });
        }
        let terms = Arc::make_mut(&mut self.terms);
        terms.name = name.into();
        terms.told = OnceLock::new();
        Ok(self)
    }

    /// Sets how many units a request costs. A cost of 0 charges nothing and is never refused; one above the burst always
    /// is.
    #[must_use]
    pub fn cost_by(mut self, cost: impl Fn(&V) -> u32 + Send + Sync + 'static) -> Self {
        self.cost_of = Some(Arc::new(cost));
        self
    }

    /// Sets the quotas of a request, such as by the client's plan; `None` leaves those of the policy. The same client with
    /// other quotas starts afresh.
    #[must_use]
    pub fn quotas_by(mut self, quotas: impl Fn(&V) -> Option<Quotas> + Send + Sync + 'static) -> Self {
        self.quotas_of = Some(Arc::new(quotas));
        self
    }

    /// Refuses nobody, and says nothing in responses: to try a limit out. Requests are charged, and handlers and logs see the decision.
    #[must_use]
    pub fn shadow(mut self) -> Self {
        Arc::make_mut(&mut self.terms).shadow = true;
        self
    }

    /// Sets the headers that tell of the limit.
    #[must_use]
    pub fn headers(mut self, headers: RateHeaders) -> Self {
        Arc::make_mut(&mut self.terms).headers = headers;
        self
    }

    /// Charges CORS preflights too. Default: they pass.
    #[must_use]
    pub fn include_preflights(mut self) -> Self {
        self.refusal.preflights = true;
        self
    }

    /// Replaces the answers to those who are refused. The closure is given the usual answer, to keep or to change.
    #[must_use]
    pub fn on_reject(
        mut self,
        replace: impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.refusal.on_reject = Some(Arc::new(replace));
        self
    }

    /// Charges a request; `None` if it passes uncharged.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] if the request has no usable key.
    pub fn check(&self, view: &V) -> Result<Option<RateCheck>, Rejection>
    where
        V: RequestView,
    {
        if self.refusal.leaves_alone(view) {
            return Ok(None);
        }
        let Some(key) = key_of(&*self.key, view, self.rates.namespace())? else {
            return Ok(None);
        };
        let cost = self.cost_of.as_ref().map_or(1, |cost| cost(view));
        let quotas = self.quotas_of.as_ref().and_then(|quotas| quotas(view));
        let check = self.rates.check(key, quotas.unwrap_or(self.quotas), cost);
        Ok(Some(RateCheck::new(check, Arc::clone(&self.terms))))
    }

    /// The answer to a request that is refused.
    #[must_use]
    pub fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.refusal.respond(rejection, format)
    }
}

/// By hand, since the request itself need not be `Clone`.
impl<V> Clone for RateLimitPolicy<V> {
    fn clone(&self) -> Self {
        Self {
            rates: self.rates.clone(),
            key: Arc::clone(&self.key),
            quotas: self.quotas,
            quotas_of: self.quotas_of.clone(),
            cost_of: self.cost_of.clone(),
            terms: Arc::clone(&self.terms),
            refusal: self.refusal.clone(),
        }
    }
}

impl<V> fmt::Debug for RateLimitPolicy<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitPolicy")
            .field("rates", &self.rates)
            .field("key", &self.key)
            .field("quotas", &self.quotas)
            .field("terms", &self.terms)
            .field("refusal", &self.refusal)
            .finish_non_exhaustive()
    }
}
