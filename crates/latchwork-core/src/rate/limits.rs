//! The front of the rate limits.

use std::{
    error::Error,
    fmt,
    sync::{Arc, atomic::Ordering},
};

use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{
    Charged, Check, MemoryRates, Quotas, RateDecision, RateEngine, RateError, RateRow, RateStats,
    decision::Source,
    denials::Denials,
    local::LocalLimiter,
    stats::{Counters, count},
};
use crate::{
    engine::{EngineError, EngineErrorKind},
    key::{IntoKey, Namespace},
};

/// What becomes of checks while the database can't be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnOutage {
    /// This process decides alone, for its own traffic, by the same quotas. Each process has a whole quota of its own
    /// then, and begins with a full burst. The decisions say [`RateDecision::is_degraded`].
    #[default]
    Open,
    /// Checks fail with [`RateError::Unavailable`] or [`RateError::Backend`].
    Closed,
}

/// Plain values that [`RateLimits`] are made with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RateLimitsOptions {
    /// What names are mixed with. Default: the unnamed namespace.
    pub namespace: Namespace,
    /// What becomes of checks while the database can't be asked. Default: open.
    pub on_outage: OnOutage,
    /// The most denials that are remembered, of about 100 bytes each. Default 10,000. With 0, each check is a question.
    pub denials: usize,
    /// The most keys that this process keeps for itself in an outage, of about 100 bytes each. Beyond that number those
    /// that have not been charged for longest start afresh. Default 100,000.
    pub local_rows: usize,
}

impl Default for RateLimitsOptions {
    fn default() -> Self {
        Self {
            namespace: Namespace::unnamed(),
            on_outage: OnOutage::Open,
            denials: 10_000,
            local_rows: 100_000,
        }
    }
}

impl RateLimitsOptions {
    /// Sets what names are mixed with.
    #[must_use]
    pub fn with_namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = namespace;
        self
    }

    /// Sets what becomes of checks while the database can't be asked.
    #[must_use]
    pub const fn with_on_outage(mut self, on_outage: OnOutage) -> Self {
        self.on_outage = on_outage;
        self
    }

    /// Sets the most denials that are remembered.
    #[must_use]
    pub const fn with_denials(mut self, most: usize) -> Self {
        self.denials = most;
        self
    }

    /// Sets the most keys that this process keeps for itself in an outage.
    #[must_use]
    pub const fn with_local_rows(mut self, most: usize) -> Self {
        self.local_rows = most;
        self
    }
}

/// Checks rates against quotas, over all processes that share a database.
///
/// A service makes one and clones it freely: all clones share the session, the denials and the counters. What is charged
/// stays charged; there is nothing to release.
///
/// # Examples
///
/// ```
/// use latchwork_core::rate::{Quota, Quotas, RateLimits};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rates = RateLimits::in_memory();
/// let quotas = Quotas::all([Quota::per_second(2)?, Quota::per_hour(100)?])?;
///
/// assert!(rates.check(("user", 42), quotas, 2).await?.is_allowed());
/// let denied = rates.check(("user", 42), quotas, 1).await?;
/// assert!(!denied.is_allowed() && denied.retry_after().is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RateLimits {
    inner: Arc<Inner>,
    namespace: Namespace,
}

impl RateLimits {
    /// Puts the front before an engine.
    #[must_use]
    pub fn new(engine: Arc<dyn RateEngine>, options: RateLimitsOptions) -> Self {
        Self {
            inner: Arc::new(Inner {
                engine,
                on_outage: options.on_outage,
                denials: Denials::new(options.denials),
                local: LocalLimiter::new(options.local_rows),
                counters: Counters::default(),
            }),
            namespace: options.namespace,
        }
    }

    /// Rate limits inside this process, for tests and for services that run once.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(Arc::new(MemoryRates::new()), RateLimitsOptions::default())
    }

    /// The same rate limits, with names taken in another namespace.
    #[must_use]
    pub fn with_namespace(&self, namespace: Namespace) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            namespace,
        }
    }

    /// The namespace that names are taken in.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Charges a key `cost` units if all quotas allow it, and says whether they did. With several quotas either all are
    /// charged or none. A cost of 0 charges nothing, is always allowed, and tells how things are.
    ///
    /// Keys are made as for locks, but share nothing with them: what is charged belongs to the key and the quotas
    /// together (see [`Quotas`]). The future asks when it is first polled; requests that come while a statement is on the
    /// wire go into the next.
    ///
    /// # Errors
    ///
    /// See [`RateError`]. That a charge is denied is a decision, not an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # use latchwork_core::rate::{Quota, RateLimits};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let rates = RateLimits::in_memory();
    /// let quota = Quota::per_minute(60)?.with_burst(5)?;
    /// let decision = rates.check(["login", "10.0.0.7"], quota, 1).await?;
    /// if let Some(wait) = decision.retry_after() {
    ///     println!("try again in {wait:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn check(&self, key: impl IntoKey, quotas: impl Into<Quotas>, cost: u32) -> Check {
        let quotas = quotas.into();
        let row = key.into_key(&self.namespace).map(|key| RateRow::new(key, &quotas));
        Check::new(Arc::clone(&self.inner), row, quotas, cost)
    }

    /// What was counted since the start.
    #[must_use]
    pub fn stats(&self) -> RateStats {
        let Inner {
            counters,
            denials,
            local,
            ..
        } = &*self.inner;
        counters.snapshot(denials.len(), local.len())
    }

    /// Closes: ends the engine's session. Checks end with [`RateError::Closed`] from then on.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rate limits closed.
    pub async fn close(&self) {
        let (done, closed) = oneshot::channel();
        self.inner.engine.close(done);
        // An engine that drops its end has closed.
        let _ = closed.await;
    }
}

impl fmt::Debug for RateLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimits")
            .field("engine", &self.inner.engine)
            .field("on_outage", &self.inner.on_outage)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

/// What all clones share.
pub(super) struct Inner {
    pub(super) engine: Arc<dyn RateEngine>,
    on_outage: OnOutage,
    denials: Denials,
    local: LocalLimiter,
    counters: Counters,
}

impl Inner {
    /// Answers without asking the engine, where that is certain.
    pub(super) fn known(&self, row: RateRow, quotas: &Quotas, cost: u32) -> Option<RateDecision> {
        let charged = self.denials.deny(row, quotas, cost, || self.engine.clock().now())?;
        count(&self.counters.denied_from_memory);
        Some(self.decided(quotas, charged, cost, Source::Denials))
    }

    /// Makes a decision of what the engine says.
    pub(super) fn answered(
        &self,
        row: RateRow,
        quotas: &Quotas,
        cost: u32,
        answer: Result<Charged, EngineError>,
    ) -> Result<RateDecision, RateError> {
        let error = match answer {
            Ok(charged) => {
                self.outage_ended();
                if !charged.allowed {
                    self.denials.keep(row, quotas, cost, &charged);
                }
                return Ok(self.decided(quotas, charged, cost, Source::Engine));
            }
            Err(error) => error,
        };
        let bridged = !matches!(error.kind(), EngineErrorKind::Setup | EngineErrorKind::Closed);
        if bridged {
            self.outage_began(&error);
        }
        if bridged && self.on_outage == OnOutage::Open {
            let charged = self.local.charge(row, quotas, cost, self.engine.clock().now());
            count(&self.counters.degraded);
            return Ok(self.decided(quotas, charged, cost, Source::Local));
        }
        Err(self.failed(RateError::from_engine(&error)))
    }

    pub(super) fn failed(&self, error: RateError) -> RateError {
        count(&self.counters.failed);
        error
    }

    fn decided(&self, quotas: &Quotas, charged: Charged, cost: u32, source: Source) -> RateDecision {
        count(if charged.allowed {
            &self.counters.allowed
        } else {
            &self.counters.denied
        });
        RateDecision::new(*quotas, charged, cost, source)
    }

    fn outage_began(&self, error: &EngineError) {
        if self.counters.is_outage.swap(true, Ordering::Relaxed) {
            return;
        }
        count(&self.counters.outages);
        let what = match self.on_outage {
            OnOutage::Open => "this process decides alone",
            OnOutage::Closed => "checks fail",
        };
        warn!(target: "latchwork::core", error = error as &dyn Error, "rate limits can't be asked for: {what}");
    }

    fn outage_ended(&self) {
        // A plain read first: this is on every check's way.
        if self.counters.is_outage.load(Ordering::Relaxed) && self.counters.is_outage.swap(false, Ordering::Relaxed) {
            info!(target: "latchwork::core", "rate limits are kept by the database again");
        }
    }
}
