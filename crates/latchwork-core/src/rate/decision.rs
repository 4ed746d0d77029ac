use std::time::Duration;

use super::{Charged, Quota, Quotas};

/// Whether a charge was allowed, and how things are after it. All durations count from the moment of the decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateDecision {
    quotas: Quotas,
    charged: Charged,
    cost: u32,
    source: Source,
}

/// Who has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Engine,
    /// A denial that was still good.
    Denials,
    /// The limiter of this process, in an outage.
    Local,
}

/// One quota after a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaState {
    /// The quota.
    pub quota: Quota,
    /// How many units are left.
    pub remaining: u32,
    /// When the whole burst will be back, if nothing more is charged.
    pub reset_after: Duration,
    /// When the same charge will be allowed by this quota, if nobody charges anything meanwhile; zero if it is now.
    pub retry_after: Duration,
}

impl RateDecision {
    pub(super) const fn new(quotas: Quotas, charged: Charged, cost: u32, source: Source) -> Self {
        Self {
            quotas,
            charged,
            cost,
            source,
        }
    }

    /// Whether the charge was allowed, and so was made. If not, nothing was charged.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.charged.allowed
    }

    /// How many units were charged, or would have been.
    #[must_use]
    pub const fn cost(&self) -> u32 {
        self.cost
    }

    /// How many units may be charged at once by the tightest quota.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.tightest().quota.burst()
    }

    /// How many units are left in the tightest quota.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.tightest().remaining
    }

    /// When the whole burst of the tightest quota will be back, if nothing more is charged.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.tightest().reset_after
    }

    /// When the same charge would be allowed, if nobody charges anything meanwhile; `None` if it was allowed.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_allowed() {
            return None;
        }
        self.states().map(|state| state.retry_after).max()
    }

    /// The quota that decides: of a denied charge the one that will deny it for longest, else the one with the fewest
    /// units left.
    #[must_use]
    pub fn tightest(&self) -> QuotaState {
        let states = self.states();
        let tightest = if self.is_allowed() {
            states.min_by_key(|state| state.remaining)
        } else {
            states.max_by_key(|state| state.retry_after)
        };
        tightest.expect("there is always a quota")
    }

    /// All quotas, in their order.
    pub fn states(&self) -> impl Iterator<Item = QuotaState> {
        let allowed = self.is_allowed();
        let ahead = self.quotas.as_slice().iter().zip(self.charged.ahead);
        ahead.map(move |(quota, ahead)| QuotaState {
            quota: *quota,
            remaining: quota.left(ahead),
            reset_after: Duration::from_nanos(ahead),
            retry_after: if allowed {
                Duration::ZERO
            } else {
                Duration::from_nanos(quota.allowed_in(ahead, self.cost))
            },
        })
    }

    /// Whether this process has decided alone, for its own traffic only, because the database could not.
    #[must_use]
    pub const fn is_degraded(&self) -> bool {
        matches!(self.source, Source::Local)
    }

    /// Whether a denial that this process remembers has decided, without a word to the database.
    #[must_use]
    pub const fn is_remembered(&self) -> bool {
        matches!(self.source, Source::Denials)
    }
}
