//! A front with an engine that keeps the requests until the test answers them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::{
    clock::{Clock, ClockHand, Moment},
    engine::{EngineError, EngineErrorKind},
    locks::lock,
    rate::{
        ChargeRequest, Charged, Check, MAX_QUOTAS, RateDecision, RateEngine, RateError, RateLimits, RateLimitsOptions,
    },
    testing::{Polled, poll},
};

#[derive(Debug)]
struct Scripted {
    requests: Mutex<VecDeque<ChargeRequest>>,
    clock: Clock,
}

impl RateEngine for Scripted {
    fn charge(&self, request: ChargeRequest) {
        lock(&self.requests).push_back(request);
    }

    fn close(&self, done: oneshot::Sender<()>) {
        drop(done);
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }
}

pub(super) struct Desk {
    pub(super) rates: RateLimits,
    pub(super) hand: ClockHand,
    engine: Arc<Scripted>,
}

impl Desk {
    pub(super) fn new(options: RateLimitsOptions) -> Self {
        let (clock, hand) = Clock::manual();
        let engine = Arc::new(Scripted {
            requests: Mutex::default(),
            clock,
        });
        Self {
            rates: RateLimits::new(Arc::<Scripted>::clone(&engine), options),
            hand,
            engine,
        }
    }

    /// The requests that nobody has answered.
    pub(super) fn asked(&self) -> usize {
        lock(&self.engine.requests).len()
    }

    pub(super) fn now(&self) -> Moment {
        self.engine.clock.now()
    }

    pub(super) fn next(&self) -> ChargeRequest {
        lock(&self.engine.requests).pop_front().expect("nobody has asked")
    }

    /// Has a check ask, answers it, and returns what it makes of that.
    pub(super) fn answered(
        &self,
        check: Check,
        answer: Result<Charged, EngineError>,
    ) -> Result<RateDecision, RateError> {
        let mut check = asks(check);
        self.next().reply.send(answer);
        check.ready()
    }

    pub(super) fn allowed(&self) -> Result<Charged, EngineError> {
        Ok(Charged::new(true, [0; MAX_QUOTAS], self.now()))
    }

    /// A denial by a first quota whose arrival time lies so far ahead.
    pub(super) fn denied(&self, ahead: Duration) -> Result<Charged, EngineError> {
        let ahead = ahead.as_nanos() as u64;
        Ok(Charged::new(false, [ahead, 0, 0, 0], self.now()))
    }
}

pub(super) fn failed(kind: EngineErrorKind) -> Result<Charged, EngineError> {
    Err(EngineError::new(kind))
}

/// Has a check ask.
pub(super) fn asks(check: Check) -> Polled<Check> {
    poll(check)
}
