use std::time::Duration;

use crate::{
    AcquireError, EngineCause, Lost, ReleaseError,
    engine::{EngineError, EngineErrorKind},
    key::{Key, KeyError},
};

/// Why it is not known whether work was done, or why it was not finished.
///
/// That others do it is not among the reasons; it is an [`Outcome`](super::Outcome).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnceError {
    /// The lock could not be asked for.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The ledger could not be asked. The tick may have been claimed all the same, and is not claimed again then.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The tick lies too far ahead of the database's clock. Were it claimed, the job would stand still until then.
    #[error(
        "the tick of job {key} lies {by:?} ahead of the database's clock, and more than {allowed:?} is refused; set the \
         clock of this machine"
    )]
    Ahead {
        /// The job.
        key: Key,
        /// How far it lies ahead.
        by: Duration,
        /// How far it may.
        allowed: Duration,
    },
    /// The lock was lost while the work was under way, and the work was dropped.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The work was not done in time, and was dropped.
    #[error("job {key} was not done within {limit:?} and was stopped; what it has done stays done")]
    Overran {
        /// The job.
        key: Key,
        /// The limit that ran out.
        limit: Duration,
    },
    /// The work was done, but its lock was lost before, unseen, or it is not known that it was held to the end: others may
    /// have been at it too. Its value is dropped.
    #[error("the work was done, but its lock may not have been held to the end")]
    Release(#[source] ReleaseError),
    /// What a [`Scheduler`](super::Scheduler) calls has panicked, though not the work of the job: a clock, or an error as it
    /// was shown.
    #[error("the scheduler of job {key} panicked, and begins again")]
    Panicked {
        /// The job.
        key: Key,
    },
}

impl OnceError {
    /// Whether the database is what is wrong.
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        match self {
            Self::Acquire(error) => error.is_outage(),
            Self::Ledger(error) => error.is_outage(),
            Self::Ahead { .. } | Self::Lost(_) | Self::Overran { .. } | Self::Release(_) | Self::Panicked { .. } => {
                false
            }
        }
    }

    /// Whether the work had begun.
    #[must_use]
    pub const fn has_begun(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Overran { .. } | Self::Release(_))
    }
}

impl From<KeyError> for OnceError {
    fn from(error: KeyError) -> Self {
        Self::Acquire(error.into())
    }
}

/// Why the ledger of ticks has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The database can't be reached, does not answer, or was closed.
    #[error("the ledger of ticks can't be asked")]
    Unavailable(#[source] Option<EngineCause>),
    /// The table is missing, or may not be used. The source says what to do.
    #[error("the database is not set up for ticks")]
    Setup(#[source] Option<EngineCause>),
    /// The server reported an error of its own.
    #[error("the ledger of ticks reports an error")]
    Backend(#[source] Option<EngineCause>),
}

impl LedgerError {
    pub(super) fn from_engine(error: &EngineError) -> Self {
        let cause = error.cause().map(EngineCause::new);
        match error.kind() {
            EngineErrorKind::Setup => Self::Setup(cause),
            EngineErrorKind::Failed | EngineErrorKind::CapacityExceeded => Self::Backend(cause),
            EngineErrorKind::Unavailable
            | EngineErrorKind::ConnectionLost
            | EngineErrorKind::Refused
            | EngineErrorKind::Closed => Self::Unavailable(cause),
        }
    }

    /// Whether the database is what is wrong.
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}
