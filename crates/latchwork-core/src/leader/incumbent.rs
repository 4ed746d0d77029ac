use std::time::SystemTime;

use crate::{
    EngineCause,
    engine::{EngineError, EngineErrorKind},
    fence::Term,
};

/// Who leads, or is about to, as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incumbent {
    /// Which process it is: the name of its program and a random number of its start. The name may be cut where it stands
    /// beside a term; the number tells processes apart.
    pub identity: String,
    /// The address that it is connected from, where the server tells.
    pub host: Option<String>,
    /// Since when it leads, by its own clock; `None` if it does not lead yet, since transactions of the last leader still
    /// run, or if it holds the lock as something else than a leader.
    pub since: Option<SystemTime>,
    /// Its term; `None` where [`since`](Self::since) is.
    pub term: Option<Term>,
}

impl Incumbent {
    /// One that is known by its identity alone.
    #[must_use]
    pub const fn new(identity: String) -> Self {
        Self {
            identity,
            host: None,
            since: None,
            term: None,
        }
    }
}

/// Why it is not known who leads.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaderError {
    /// The lock server can't be reached, does not answer, or was closed.
    #[error("the lock server can't be asked who leads")]
    Unavailable(#[source] Option<EngineCause>),
    /// The server reported an error of its own.
    #[error("the lock server does not say who leads")]
    Backend(#[source] Option<EngineCause>),
}

impl LeaderError {
    pub(super) fn from_engine(error: &EngineError) -> Self {
        let cause = error.cause().map(EngineCause::new);
        match error.kind() {
            EngineErrorKind::Failed | EngineErrorKind::Setup | EngineErrorKind::CapacityExceeded => {
                Self::Backend(cause)
            }
            EngineErrorKind::Unavailable
            | EngineErrorKind::ConnectionLost
            | EngineErrorKind::Refused
            | EngineErrorKind::Closed => Self::Unavailable(cause),
        }
    }
}
