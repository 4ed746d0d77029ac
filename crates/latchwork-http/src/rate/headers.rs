//! What a response says of the rate limit.

use std::{
    fmt::{self, Write},
    sync::OnceLock,
    time::Duration,
};

use http::{HeaderName, HeaderValue};
use latchwork_core::rate::{Quota, QuotaState, RateDecision};

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The headers in which responses tell of the limit. `Retry-After` is in every refusal, whatever this says.
///
/// The limit is told as a bucket: what may be charged at once (`q`), how long it takes to come back from empty (`w`), what
/// is left (`r`), and when it will be whole again (`t`). Times are whole seconds, rounded up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RateHeaders {
    /// `RateLimit` and `RateLimit-Policy` as in draft-ietf-httpapi-ratelimit-headers-10: a list of named quotas, as
    /// `"search";r=19;t=1` and `"search";q=20;w=2`.
    #[default]
    Draft10,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` (in seconds from now), of the quota that has
    /// the least left.
    XRateLimit,
    /// No headers.
    None,
}

impl RateHeaders {
    /// The headers that tell of a decision. What was told of the quotas is kept in `told`, for one name.
    pub(super) fn of(
        self,
        name: &str,
        decision: &RateDecision,
        told: &OnceLock<ToldPolicy>,
    ) -> Vec<(HeaderName, HeaderValue)> {
        match self {
            Self::Draft10 => draft10(name, decision, told),
            Self::XRateLimit => {
                let tightest = decision.tightest();
                vec![
                    (X_LIMIT, tightest.quota.burst().into()),
                    (X_REMAINING, tightest.remaining.into()),
                    (X_RESET, seconds(tightest.reset_after).into()),
                ]
            }
            Self::None => Vec::new(),
        }
    }
}

/// The `RateLimit-Policy` of some quotas, which is the same in every response.
#[derive(Clone, Debug)]
pub(super) struct ToldPolicy {
    quotas: Vec<Quota>,
    value: HeaderValue,
}

impl ToldPolicy {
    fn of(name: &str, decision: &RateDecision) -> Option<Self> {
        let quotas: Vec<Quota> = decision.states().map(|state| state.quota).collect();
        let value = list(name, &quotas, |text, quota| {
            let window = seconds(quota.refill()).max(1);
            write!(text, "q={};w={window}", quota.burst())
        })?;
        Some(Self { quotas, value })
    }

    fn tells_of(&self, decision: &RateDecision) -> bool {
        decision
            .states()
            .map(|state| state.quota)
            .eq(self.quotas.iter().copied())
    }
}

fn draft10(name: &str, decision: &RateDecision, told: &OnceLock<ToldPolicy>) -> Vec<(HeaderName, HeaderValue)> {
    if told.get().is_none()
        && let Some(policy) = ToldPolicy::of(name, decision)
    {
        // Another request may have been first.
        let _ = told.set(policy);
    }
    let policy = match told.get() {
        Some(told) if told.tells_of(decision) => Some(told.value.clone()),
        _ => ToldPolicy::of(name, decision).map(|policy| policy.value),
    };
    let limit = list(
        name,
        decision.states(),
        |text,
         QuotaState {
             remaining, reset_after, ..
         }| { write!(text, "r={remaining};t={}", seconds(reset_after)) },
    );
    let values = [(POLICY, policy), (LIMIT, limit)].into_iter();
    values.filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A list with an item for each quota, named after the limit and its place.
fn list<T>(
    name: &str,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(&mut String, T) -> fmt::Result,
) -> Option<HeaderValue> {
    let mut text = String::with_capacity(name.len() + 40);
    for (at, item) in items.into_iter().enumerate() {
        match at {
            0 => write!(text, "\"{name}\";"),
            _ => write!(text, ", \"{name}-{}\";", at + 1),
        }
        .and_then(|()| write(&mut text, item))
        .expect("a String takes all");
    }
    text.try_into().ok()
}

/// Whole seconds, rounded up.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use latchwork_core::rate::{Quotas, RateLimits};

    use super::*;

    async fn decision(cost: u32) -> RateDecision {
        let quotas = Quotas::all([
            Quota::per_second(10).unwrap().with_burst(20).unwrap(),
            Quota::per_minute(60).unwrap(),
        ]);
        RateLimits::in_memory().check("k", quotas.unwrap(), cost).await.unwrap()
    }

    fn shown(headers: &[(HeaderName, HeaderValue)]) -> Vec<(&str, &str)> {
        headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect()
    }

    #[tokio::test]
    async fn the_draft_names_each_quota() {
        let headers = RateHeaders::Draft10.of("search", &decision(5).await, &OnceLock::new());
        assert_eq!(
            shown(&headers),
            [
                ("ratelimit-policy", "\"search\";q=20;w=2, \"search-2\";q=60;w=60"),
                ("ratelimit", "\"search\";r=15;t=1, \"search-2\";r=55;t=5"),
            ]
        );
    }

    #[tokio::test]
    async fn the_older_headers_tell_of_the_tightest_quota() {
        let headers = RateHeaders::XRateLimit.of("search", &decision(20).await, &OnceLock::new());
        assert_eq!(
            shown(&headers),
            [
                ("x-ratelimit-limit", "20"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "2")
            ]
        );
        assert_eq!(RateHeaders::None.of("search", &decision(1).await, &OnceLock::new()), []);
    }

    #[tokio::test]
    async fn requests_of_other_quotas_are_told_of_their_own() {
        let told = OnceLock::new();
        let rates = RateLimits::in_memory();
        for burst in [20, 30, 20] {
            let quota = Quota::per_second(10).unwrap().with_burst(burst).unwrap();
            let headers = RateHeaders::Draft10.of("search", &rates.check("k", quota, 0).await.unwrap(), &told);
            assert_eq!(
                shown(&headers)[0],
                ("ratelimit-policy", &*format!("\"search\";q={burst};w={}", burst / 10))
            );
        }
    }
}
