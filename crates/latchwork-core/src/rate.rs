//! Rate limits: how often something may happen, counted over all processes.
//!
//! The algorithm is the *generic cell rate algorithm* of ITU-T Recommendation I.371 (annex A) and of the ATM Forum's
//! Traffic Management Specification, in its form "virtual scheduling": for each key and [`Quota`] one moment is kept, the
//! *theoretical arrival time* of the next cell. Each unit that is charged moves it on by one interval, and a charge is
//! allowed as long as it does not come to lie further in the future than the burst reaches. So a limit costs one number,
//! not a counter for each window, and at no window's edge is more let through than at any other time:
//!
//! **In no span of time `t` are more than `burst + t / interval` units allowed.** A call that is denied changes nothing.
//!
//! [`RateLimits`] is the front. The moments are kept by a [`RateEngine`]: on PostgreSQL (crate `latchwork-postgres`), or
//! inside the process ([`RateLimits::in_memory`]). Denials are remembered in the process until they lapse, and an outage
//! of the engine is bridged as [`OnOutage`] says.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use latchwork_core::rate::{Quota, RateLimits};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rates = RateLimits::in_memory();
//! let searches = Quota::per_second(10)?.with_burst(20)?;
//!
//! let decision = rates.check(["search", "user 42"], searches, 1).await?;
//! assert!(decision.is_allowed());
//! assert_eq!((decision.limit(), decision.remaining()), (20, 19));
//! # Ok(())
//! # }
//! ```

mod check;
mod decision;
mod denials;
mod engine;
mod error;
mod limits;
mod local;
mod memory;
mod quota;
mod quotas;
mod recent;
mod stats;
#[cfg(test)]
mod tests;

pub use check::Check;
pub use decision::{QuotaState, RateDecision};
pub use engine::{ChargeReply, ChargeRequest, Charged, RateEngine, RateRow};
pub use error::{QuotaError, RateError};
pub use limits::{OnOutage, RateLimits, RateLimitsOptions};
pub use memory::MemoryRates;
pub use quota::Quota;
pub use quotas::{MAX_QUOTAS, Quotas};
pub use stats::RateStats;
