//! What can go wrong, one type for each step.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use crate::{
    engine::{EngineError, EngineErrorKind},
    key::{Key, KeyError},
};

/// The engine's own account of a failure, as the source of one of ours.
#[derive(Clone)]
pub struct EngineCause(Arc<dyn Error + Send + Sync>);

impl EngineCause {
    pub(crate) const fn new(cause: Arc<dyn Error + Send + Sync>) -> Self {
        Self(cause)
    }
}

impl fmt::Debug for EngineCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for EngineCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for EngineCause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Why a key was not acquired.
///
/// That somebody else holds the key is not among the reasons of a try; it is its answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The name does not make a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The key was held by others until the limit ran out.
    #[error("key {key} was held by others{}; try again later, or allow more time", For(*limit))]
    TimedOut {
        /// The key that was wanted.
        key: Key,
        /// The limit that ran out.
        limit: Duration,
    },
    /// Nobody was asked for the key before the limit ran out: the engine had no connection that was old enough for a fenced
    /// lock. It has to be as old as the time for which a lock can be believed in that was lost, on PostgreSQL 5 s by default;
    /// so the first fenced lock in a process takes as long.
    #[error(
        "no connection was old enough for a fenced lock on key {key} in {limit:?}, whoever may hold it; the first one in a \
         process takes a few seconds, so allow more time"
    )]
    NotReady {
        /// The key that was wanted.
        key: Key,
        /// The limit that ran out.
        limit: Duration,
    },
    /// The lock server can't be reached or does not answer. Nothing is known of the key.
    #[error("the lock server can't be reached or does not answer, so nothing is known of key {key}")]
    Unavailable {
        /// The key that was wanted.
        key: Key,
        /// What the engine saw, if it saw anything.
        source: Option<EngineCause>,
    },
    /// The connection ended while the request was on its way. Nothing stays held: the server releases all locks of a
    /// connection that ends.
    #[error("the connection to the lock server ended while key {key} was asked for; nothing is held, ask again")]
    ConnectionLost {
        /// The key that was wanted.
        key: Key,
        /// What the engine saw, if it saw anything.
        source: Option<EngineCause>,
    },
    /// The server can't be trusted with these locks: a standby, a transaction pooler, a look-alike. The source says
    /// which, and what to do.
    #[error("the lock server was refused")]
    Refused {
        /// What the engine found.
        source: Option<EngineCause>,
    },
    /// There is no room for another lock. The source says whose limit it is, and what to do.
    #[error("there is no room for another lock, so key {key} was not acquired")]
    CapacityExceeded {
        /// The key that was wanted.
        key: Key,
        /// The limit that was reached.
        source: Option<EngineCause>,
    },
    /// The locks were closed.
    #[error("the locks were closed")]
    Closed,
    /// The server reported an error of its own.
    #[error("the lock server reported an error for key {key}")]
    Backend {
        /// The key that was wanted.
        key: Key,
        /// The error.
        source: Option<EngineCause>,
    },
}

/// For how long; nothing for a single attempt.
struct For(Duration);

impl fmt::Display for For {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Duration::ZERO => Ok(()),
            limit => write!(f, " for all of {limit:?}"),
        }
    }
}

impl AcquireError {
    pub(crate) fn from_engine(key: Key, error: &EngineError) -> Self {
        let source = error.cause().map(EngineCause);
        match error.kind() {
            EngineErrorKind::Unavailable => Self::Unavailable { key, source },
            EngineErrorKind::ConnectionLost => Self::ConnectionLost { key, source },
            EngineErrorKind::Refused | EngineErrorKind::Setup => Self::Refused { source },
            EngineErrorKind::CapacityExceeded => Self::CapacityExceeded { key, source },
            EngineErrorKind::Closed => Self::Closed,
            EngineErrorKind::Failed => Self::Backend { key, source },
        }
    }

    /// Whether the key was held by others until the limit ran out.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Whether the database is what is wrong: it can't be reached, does not answer, or went away. Never to be reported
    /// as "busy".
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. } | Self::ConnectionLost { .. } | Self::Refused { .. } | Self::Closed
        )
    }

    /// Whether asking again later can succeed without anybody changing anything.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::NotReady { .. }
                | Self::Unavailable { .. }
                | Self::ConnectionLost { .. }
                | Self::CapacityExceeded { .. }
        )
    }
}

/// Why a release did not find the lock held to the end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The hold had ended before: from some moment on, others may have held the key too.
    #[error("key {key} was lost before it was released; others may have held it too, so check what was done under it")]
    Lost {
        /// The key that was held.
        key: Key,
    },
    /// The connection ended before the server could say whether the lock was held to the end. The lock is gone with
    /// the connection.
    #[error(
        "the connection to the lock server ended before it confirmed the release of key {key}; it is not held any more, \
         but check what was done under it if that matters"
    )]
    Unconfirmed {
        /// The key that was held.
        key: Key,
        /// What the engine saw, if it saw anything.
        source: Option<EngineCause>,
    },
}

impl ReleaseError {
    pub(crate) fn from_engine(key: Key, error: &EngineError) -> Self {
        Self::Unconfirmed {
            key,
            source: error.cause().map(EngineCause),
        }
    }
}

/// The lock under some work was lost, and the work was cancelled.
#[derive(Debug, thiserror::Error)]
#[error("key {key} was lost and the work under it was cancelled; acquire it again before any more of it")]
#[non_exhaustive]
pub struct Lost {
    /// The key that was held.
    pub key: Key,
}

impl Lost {
    pub(crate) const fn new(key: Key) -> Self {
        Self { key }
    }
}

/// Why closing did not wait for everybody.
#[derive(Debug, thiserror::Error)]
#[error("{holders} locks and permits were still held when the limit of {limit:?} ran out")]
#[non_exhaustive]
pub struct CloseError {
    /// How many guards and permits there were. They are lost now.
    pub holders: usize,
    /// The limit that ran out.
    pub limit: Duration,
}

impl CloseError {
    pub(crate) const fn new(holders: usize, limit: Duration) -> Self {
        Self { holders, limit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_to_those_who_ask_and_hold_says_what_to_do() {
        let (key, limit) = (Key::bigint(7), Duration::ZERO);
        let texts = [
            AcquireError::TimedOut { key, limit }.to_string(),
            AcquireError::ConnectionLost { key, source: None }.to_string(),
            ReleaseError::Lost { key }.to_string(),
            ReleaseError::Unconfirmed { key, source: None }.to_string(),
            Lost::new(key).to_string(),
        ];
        for text in texts {
            let (what, advice) = text.split_once("; ").unwrap_or_default();
            assert!(what.contains("key ") && advice.len() > 10, "{text}");
        }
    }
}
