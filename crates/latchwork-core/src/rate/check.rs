//! The future of one check.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::sync::oneshot;

use super::{ChargeReply, ChargeRequest, Charged, Quotas, RateDecision, RateError, RateRow, limits::Inner};
use crate::{engine::EngineError, key::KeyError};

/// Charges a key, and says whether that was allowed.
///
/// # Cancel safety
///
/// Dropped before it was polled, it charges nothing. Dropped later, it may have charged the key, or may not; what was
/// charged stays charged.
///
/// # Errors
///
/// See [`RateError`].
#[must_use = "futures do nothing unless awaited"]
pub struct Check {
    limits: Arc<Inner>,
    row: Result<RateRow, KeyError>,
    quotas: Quotas,
    cost: u32,
    answer: Option<oneshot::Receiver<Result<Charged, EngineError>>>,
}

impl Check {
    pub(super) const fn new(limits: Arc<Inner>, row: Result<RateRow, KeyError>, quotas: Quotas, cost: u32) -> Self {
        Self {
            limits,
            row,
            quotas,
            cost,
            answer: None,
        }
    }

    /// The row, if it can be asked for.
    fn row(&self) -> Result<RateRow, RateError> {
        let highest = self.quotas.highest_cost();
        if self.cost > highest {
            let cost = self.cost;
            return Err(RateError::CostTooHigh { cost, highest });
        }
        Ok(self.row.clone()?)
    }
}

impl Future for Check {
    type Output = Result<RateDecision, RateError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let row = match this.row() {
            Ok(row) => row,
            Err(error) => return Poll::Ready(Err(this.limits.failed(error))),
        };
        let answer = match &mut this.answer {
            Some(answer) => answer,
            none => {
                if let Some(decision) = this.limits.known(row, &this.quotas, this.cost) {
                    return Poll::Ready(Ok(decision));
                }
                let (waiter, answer) = oneshot::channel();
                let request = ChargeRequest::new(row, this.quotas, this.cost, ChargeReply::new(waiter));
                this.limits.engine.charge(request);
                none.insert(answer)
            }
        };
        let answer = ready!(Pin::new(answer).poll(context));
        // A reply that is dropped answers too.
        let answer = answer.unwrap_or_else(|_| Err(EngineError::connection_lost()));
        Poll::Ready(this.limits.answered(row, &this.quotas, this.cost, answer))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("row", &self.row)
            .field("quotas", &self.quotas)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}
