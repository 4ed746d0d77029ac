use std::fmt;

use thiserror::Error;

/// Why a server, or the way to it, is not good for holding locks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A hot standby grants advisory locks, but they exclude nobody on the primary.
    #[error(
        "it is a hot standby, whose locks exclude nobody elsewhere; connect to the primary, or list all hosts and add \
         target_session_attrs=read-write"
    )]
    Standby,
    /// A pooler gives every transaction, or every statement, another session.
    #[error(
        "a connection pooler in {mode} mode stands in front of it, so that a session lock would stay with another \
         client's session; connect to PostgreSQL itself or to a pool in session mode, or use transaction scope"
    )]
    SharedSessions {
        /// How the pooler shares the sessions.
        mode: PoolMode,
    },
    /// A pooler stands between, and its mode did not show.
    #[error(
        "a connection pooler stands in front of it and gave no second connection to find out its mode with; connect \
         to PostgreSQL itself, or raise the size of the pool"
    )]
    UnknownPooler,
    /// A product that speaks the protocol and has no advisory locks, or ones that exclude nobody.
    #[error(
        "it is {product:?}, which has no advisory locks that exclude; use a PostgreSQL server for the locks, a small \
         one beside it will do"
    )]
    LookAlike {
        /// What the server calls itself.
        product: String,
    },
    /// Two sessions were granted the same exclusive lock, or a free one was refused.
    #[error(
        "its advisory locks do not exclude ({product:?}): two sessions at this address do not see each other's locks; \
         if the address stands for several servers, connect to the primary alone, otherwise use a PostgreSQL server \
         for the locks"
    )]
    NoExclusion {
        /// What the server calls itself.
        product: String,
    },
    /// The version is older than what is supported.
    #[error("it is version {major}, and {minimum} is the oldest that is supported; upgrade it", minimum = CheckError::OLDEST)]
    TooOld {
        /// The major version.
        major: u32,
    },
}

impl CheckError {
    /// The oldest major version that is supported.
    pub const OLDEST: u32 = 13;

    /// Says whether the same server will be refused again until somebody changes it. A standby may be promoted.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Standby | Self::UnknownPooler)
    }
}

/// How a pooler shares the sessions that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolMode {
    /// A session belongs to a client for one transaction.
    Transaction,
    /// A session belongs to a client for one statement; transactions of several are refused.
    Statement,
}

impl fmt::Display for PoolMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transaction => "transaction",
            Self::Statement => "statement",
        })
    }
}
