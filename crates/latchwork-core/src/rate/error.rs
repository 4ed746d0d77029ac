use std::time::Duration;

use super::MAX_QUOTAS;
use crate::{
    engine::{EngineError, EngineErrorKind},
    error::EngineCause,
    key::KeyError,
};

/// Why there is no such quota.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// Zero units, a period of zero, or a burst of zero.
    #[error(
        "a quota of nothing lets nobody in: give it at least 1 unit, a period above zero and a burst of at least 1"
    )]
    Nothing,
    /// More than a unit a microsecond.
    #[error("{units} units in {period:?} are too fast to be counted: at most 1,000,000 a second")]
    TooFast {
        /// The units asked for.
        units: u32,
        /// The period asked for.
        period: Duration,
    },
    /// A period above 366 days.
    #[error("a period of {period:?} is too long: at most 366 days")]
    PeriodTooLong {
        /// The period asked for.
        period: Duration,
    },
    /// A burst that takes more than ten years to come back.
    #[error("a burst of {burst} would take more than ten years to come back: choose a smaller one, or a faster quota")]
    BurstTooLarge {
        /// The burst asked for.
        burst: u32,
    },
    /// An empty list of quotas.
    #[error("a check needs at least one quota")]
    NoQuota,
    /// More than [`MAX_QUOTAS`] quotas.
    #[error("a check takes at most {MAX_QUOTAS} quotas: leave out those that others imply")]
    TooManyQuotas,
}

/// Why there is no decision. That a charge was denied is not among the reasons; it is a decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// The name does not make a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The cost is more than a burst, so it would never be allowed.
    #[error("a cost of {cost} is never allowed by a quota of {highest} at once; raise the burst, or charge less")]
    CostTooHigh {
        /// The cost that was to be charged.
        cost: u32,
        /// The smallest burst of the quotas.
        highest: u32,
    },
    /// The database can't be reached or does not answer, and limits are closed in an outage. Nothing is known of the key.
    #[error("the database with the rate limits can't be reached or does not answer, so nothing is known of this one")]
    Unavailable {
        /// What the engine saw, if it saw anything.
        source: Option<EngineCause>,
    },
    /// The database was reached, but is not set up for rate limits. The source says what to do. Such a fault is told even
    /// where limits are open in an outage, for it does not go away by itself.
    #[error("the database is not set up for rate limits")]
    Setup {
        /// What the engine found.
        source: Option<EngineCause>,
    },
    /// The rate limits were closed.
    #[error("the rate limits were closed")]
    Closed,
    /// The database reported an error of its own, and limits are closed in an outage.
    #[error("the database reported an error for a rate limit")]
    Backend {
        /// The error.
        source: Option<EngineCause>,
    },
}

impl RateError {
    pub(super) fn from_engine(error: &EngineError) -> Self {
        let source = error.cause().map(EngineCause::new);
        match error.kind() {
            EngineErrorKind::Unavailable | EngineErrorKind::ConnectionLost | EngineErrorKind::Refused => {
                Self::Unavailable { source }
            }
            EngineErrorKind::Setup => Self::Setup { source },
            EngineErrorKind::Closed => Self::Closed,
            EngineErrorKind::CapacityExceeded | EngineErrorKind::Failed => Self::Backend { source },
        }
    }

    /// Whether the database is what is wrong. Never to be reported as a limit that was reached.
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. } | Self::Setup { .. } | Self::Closed | Self::Backend { .. }
        )
    }

    /// Whether asking again later can help without anybody changing anything.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Backend { .. })
    }
}
