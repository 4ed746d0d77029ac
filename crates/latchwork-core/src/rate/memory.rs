//! The engine inside the process.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::oneshot;

use super::{ChargeRequest, RateEngine, local::LocalLimiter};
use crate::{
    clock::Clock,
    engine::{EngineError, EngineErrorKind},
};

/// Rows beyond this number start afresh, those first that have not been charged for longest.
const MOST_ROWS: usize = 1_000_000;

/// Keeps rate limits in memory, for tests and for services that run once. All [`RateLimits`](super::RateLimits) before
/// one of these count together, as processes on one database do. At most a million keys are kept.
#[derive(Debug)]
pub struct MemoryRates {
    limiter: LocalLimiter,
    clock: Clock,
    is_closed: AtomicBool,
}

impl MemoryRates {
    /// An engine on which nothing is charged.
    #[must_use]
    pub fn new() -> Self {
        Self::on_clock(Clock::system())
    }

    /// An engine on a given clock, for tests that move it by hand.
    #[must_use]
    pub fn on_clock(clock: Clock) -> Self {
        Self {
            limiter: LocalLimiter::new(MOST_ROWS),
            clock,
            is_closed: AtomicBool::new(false),
        }
    }
}

impl Default for MemoryRates {
    fn default() -> Self {
        Self::new()
    }
}

impl RateEngine for MemoryRates {
    fn charge(&self, request: ChargeRequest) {
        if self.is_closed.load(Ordering::Acquire) {
            return request.reply.send(Err(EngineError::new(EngineErrorKind::Closed)));
        }
        let ChargeRequest {
            row,
            quotas,
            cost,
            reply,
        } = request;
        reply.send(Ok(self.limiter.charge(row, &quotas, cost, self.clock.now())));
    }

    fn close(&self, done: oneshot::Sender<()>) {
        self.is_closed.store(true, Ordering::Release);
        // Whoever closed may have gone.
        let _ = done.send(());
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }
}
