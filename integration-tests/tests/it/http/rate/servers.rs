//! One service with rate limits, written once for each framework.

mod actix;
mod axum;

use latchwork_core::rate::{Quota, Quotas, RateDecision, RateLimits};

pub(super) use self::{actix::Actix, axum::Axum};
use crate::http::servers::Served;

/// A framework, with the adapter for it.
pub(super) trait Server {
    /// Serves these routes, on a port of its own. Each tells what was decided, and all but the last three charge the
    /// `x-api-key`:
    ///
    /// | route | may be charged, without anything coming back |
    /// |---|---|
    /// | `GET /both` | 3 and 5 |
    /// | `GET /one` | 1 |
    /// | `GET /costly` | 10; the query says how much a request costs |
    /// | `GET /plans` | 1, or 4 with a header `x-paid` |
    /// | `GET /older` | 2, told in the older headers |
    /// | `GET /shadow` | 1, and nobody is refused |
    /// | `GET` and `POST /by-client` | 2 for each address |
    /// | `GET /by-proxied-client` | 2 for each address behind this machine |
    /// | `POST /shut` | 100 for all, and none without the database |
    fn serve(service: &Service) -> Served;
}

/// Limits that go on without the database, and limits that do not.
pub(super) struct Service {
    pub(super) open: RateLimits,
    pub(super) closed: RateLimits,
}

/// So rare that nothing comes back during a test.
fn rarely(burst: u32) -> Quota {
    Quota::per_day(1).unwrap().with_burst(burst).unwrap()
}

fn both() -> Quotas {
    Quotas::all([rarely(3), rarely(5)]).unwrap()
}

fn cost(query: Option<&str>) -> u32 {
    query.and_then(|query| query.parse().ok()).unwrap_or(1)
}

/// Tells what was decided.
fn told(decision: &RateDecision) -> String {
    let (allowed, degraded) = (decision.is_allowed(), decision.is_degraded());
    format!(
        "allowed={allowed} degraded={degraded} remaining={}",
        decision.remaining()
    )
}
