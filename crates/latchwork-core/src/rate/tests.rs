//! Tests of the arithmetic against an oracle that knows nothing of arrival times, and of the front against an engine that
//! does as it is told.

mod desk;
mod front;
mod model;
mod outages;
mod quotas;

use std::time::Duration;

use super::{Check, Quota, RateDecision, RateError};
use crate::testing::Polled;

fn quota(units: u32, period: Duration, burst: u32) -> Quota {
    Quota::new(units, period).unwrap().with_burst(burst).unwrap()
}

/// What a check says that is answered at once.
fn now(check: Check) -> Result<RateDecision, RateError> {
    Polled::new(check).ready()
}
