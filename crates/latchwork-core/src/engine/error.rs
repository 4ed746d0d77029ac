use std::{error::Error, fmt, sync::Arc};

/// What kept an engine from answering a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineErrorKind {
    /// The server can't be reached, or does not answer; it was not asked.
    Unavailable,
    /// The connection ended, or stopped answering, while the request was on its way. Nothing stays held.
    ConnectionLost,
    /// The server is not one whose locks can be trusted here: a standby, a transaction pooler, a look-alike.
    Refused,
    /// The server lacks what the request needs: a table, or a privilege. Somebody must put that right.
    Setup,
    /// The engine's own cap, or the server's lock table, has no room for another lock.
    CapacityExceeded,
    /// The engine was closed.
    Closed,
    /// Anything else; the source says what.
    Failed,
}

/// Why an engine could not answer a request. Cheap to clone: one failure may be the answer to many requests.
#[derive(Clone, Debug)]
pub struct EngineError {
    kind: EngineErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl EngineError {
    /// An error without a cause of its own.
    #[must_use]
    pub const fn new(kind: EngineErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// An error with its cause.
    #[must_use]
    pub fn with_source(kind: EngineErrorKind, source: impl Into<Arc<dyn Error + Send + Sync>>) -> Self {
        Self {
            kind,
            source: Some(source.into()),
        }
    }

    /// The connection ended.
    #[must_use]
    pub const fn connection_lost() -> Self {
        Self::new(EngineErrorKind::ConnectionLost)
    }

    /// What kind of error this is.
    #[must_use]
    pub const fn kind(&self) -> EngineErrorKind {
        self.kind
    }

    /// Whether asking again later can help without anybody changing anything.
    #[must_use]
    pub const fn is_outage(&self) -> bool {
        matches!(
            self.kind,
            EngineErrorKind::Unavailable | EngineErrorKind::ConnectionLost
        )
    }

    /// The cause as it can be shared.
    #[must_use]
    pub fn cause(&self) -> Option<Arc<dyn Error + Send + Sync>> {
        self.source.clone()
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            EngineErrorKind::Unavailable => "the lock server can't be reached or does not answer",
            EngineErrorKind::ConnectionLost => "the connection to the lock server ended",
            EngineErrorKind::Refused => "the lock server can't be trusted with these locks",
            EngineErrorKind::Setup => "the server is not set up for this",
            EngineErrorKind::CapacityExceeded => "no room for another lock",
            EngineErrorKind::Closed => "the lock engine was closed",
            EngineErrorKind::Failed => "the lock server reported an error",
        })
    }
}

impl Error for EngineError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
