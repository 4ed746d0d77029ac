//! What a response says of the rate limit.

use std::{fmt::Write, time::Duration};

use http::{HeaderName, HeaderValue};
use latchwork_core::rate::{QuotaState, RateDecision};

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
    /// The headers that tell of a decision.
    pub(super) fn of(self, name: &str, decision: &RateDecision) -> Vec<(HeaderName, HeaderValue)> {
        match self {
            Self::Draft10 => draft10(name, decision),
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

fn draft10(name: &str, decision: &RateDecision) -> Vec<(HeaderName, HeaderValue)> {
    let (mut policy, mut limit) = (String::new(), String::new());
    for (
        at,
        QuotaState {
            quota,
            remaining,
            reset_after,
            ..
        },
    ) in decision.states().enumerate()
    {
        let (comma, number) = match at {
            0 => ("", String::new()),
            _ => (", ", format!("-{}", at + 1)),
        };
        let (window, reset) = (seconds(quota.refill()).max(1), seconds(reset_after));
        let q = quota.burst();
        write!(policy, "{comma}\"{name}{number}\";q={q};w={window}").expect("a String takes all");
        write!(limit, "{comma}\"{name}{number}\";r={remaining};t={reset}").expect("a String takes all");
    }
    let values = [(POLICY, policy), (LIMIT, limit)].into_iter();
    values
        .filter_map(|(name, value)| Some((name, value.try_into().ok()?)))
        .collect()
}

/// Whole seconds, rounded up.
fn seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use latchwork_core::rate::{Quota, Quotas, RateLimits};

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
        let headers = RateHeaders::Draft10.of("search", &decision(5).await);
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
        let headers = RateHeaders::XRateLimit.of("search", &decision(20).await);
        assert_eq!(
            shown(&headers),
            [
                ("x-ratelimit-limit", "20"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", "2")
            ]
        );
        assert_eq!(RateHeaders::None.of("search", &decision(1).await), []);
    }
}
