use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
};

use http::{HeaderName, HeaderValue};
use latchwork_core::rate::{Check, RateDecision, RateError};
use tracing::{debug, warn};

use super::{RateHeaders, headers::ToldPolicy};
use crate::{ExtractError, Rejection, RejectionKind};

/// What becomes of a request, and what its response says of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RateVerdict {
    /// The decision, for handlers; there is none if the database could not decide.
    pub decision: Option<RateDecision>,
    /// Why the request is refused, if it is.
    pub rejection: Option<Rejection>,
    /// What the response says, whether the request is refused or not. To be added to what inner layers say.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

/// Charges a request.
///
/// # Cancel safety
///
/// As [`Check`]: what was charged stays charged.
#[must_use = "futures do nothing unless awaited"]
pub struct RateCheck {
    check: Check,
    terms: Arc<Terms>,
}

/// How a decision is told.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) name: Box<str>,
    pub(super) headers: RateHeaders,
    /// Nobody is refused.
    pub(super) shadow: bool,
    /// What responses say of the quotas of the first request: those of most.
    pub(super) told: OnceLock<ToldPolicy>,
}

impl RateCheck {
    pub(super) const fn new(check: Check, terms: Arc<Terms>) -> Self {
        Self { check, terms }
    }
}

impl Terms {
    fn decided(&self, decision: RateDecision) -> RateVerdict {
        let headers = if self.shadow {
            Vec::new()
        } else {
            self.headers.of(&self.name, &decision, &self.told)
        };
        let rejection = decision.retry_after().map(|after| {
            debug!(target: "latchwork::http", limit = %self.name, shadow = self.shadow, "a request is over its limit");
            Rejection::new(RejectionKind::RateLimited).with_retry_after(after)
        });
        RateVerdict {
            rejection: rejection.filter(|_| !self.shadow),
            decision: Some(decision),
            headers,
        }
    }

    fn undecided(&self, error: RateError) -> RateVerdict {
        let rejection = match error {
            RateError::Key(error) => ExtractError::from_key(&error).into(),
            RateError::CostTooHigh { .. } => Rejection::new(RejectionKind::RateLimited)
                .never("the request asks for more than is ever allowed at once"),
            RateError::Setup { .. } => {
                let shown: &dyn Error = &error;
                warn!(target: "latchwork::http", error = shown, limit = %self.name, "a rate limit is not set up");
                Rejection::new(RejectionKind::Setup).with_source(error)
            }
            error => Rejection::new(RejectionKind::Unavailable).with_source(error),
        };
        RateVerdict {
            decision: None,
            rejection: Some(rejection).filter(|_| !self.shadow),
            headers: Vec::new(),
        }
    }
}

impl Future for RateCheck {
    type Output = RateVerdict;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RateVerdict> {
        Poll::Ready(match ready!(Pin::new(&mut self.check).poll(context)) {
            Ok(decision) => self.terms.decided(decision),
            Err(error) => self.terms.undecided(error),
        })
    }
}

impl fmt::Debug for RateCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateCheck")
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
