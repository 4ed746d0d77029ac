use std::error::Error;

use latchwork_core::xact::XactLockError;

/// What went wrong with a transaction, sorted by what is known of it afterwards.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TxError {
    /// The database can't be reached or does not answer, or no connection came free in time. Nothing was stored.
    #[error("the database cannot be reached or does not answer, and nothing was stored; try again later")]
    Unavailable(#[source] Cause),
    /// The server has rolled the transaction back: an earlier statement had failed, or the commit itself was refused,
    /// as by a deferred constraint. Nothing was stored.
    #[error("the server has rolled the transaction back, and nothing was stored; see the cause")]
    Aborted(#[source] Cause),
    /// The connection ended between COMMIT and its answer, or the handler has ended the transaction itself. What was
    /// done may be stored or not.
    #[error("it is not known whether anything was stored; look before you repeat, and see the cause")]
    OutcomeUnknown(#[source] Cause),
    /// The database lacks a table or a column, or this role may not use it. It does not go away by itself.
    #[error(
        "the database lacks what is needed, or this role may not use it: make latchwork's tables with `install_schema`, \
         or grant the role its rights, and see the cause"
    )]
    Setup(#[source] Cause),
    /// Any other error of the server or the driver.
    #[error("the database refused; see the cause")]
    Other(#[source] Cause),
}

/// A lock that the server could not be asked for is an outage; what it refuses is its own error.
impl From<XactLockError> for TxError {
    fn from(error: XactLockError) -> Self {
        match error {
            XactLockError::NoAnswer { .. } | XactLockError::ConnectionLost { .. } | XactLockError::Cancelled { .. } => {
                Self::unavailable(error)
            }
            _ => Self::other(error),
        }
    }
}

/// What the driver, its pool, or the server says.
pub(crate) type Cause = Box<dyn Error + Send + Sync>;

impl TxError {
    /// [`Unavailable`](Self::Unavailable), with what it was seen by.
    pub fn unavailable(cause: impl Into<Cause>) -> Self {
        Self::Unavailable(cause.into())
    }

    /// [`Aborted`](Self::Aborted), with what it was seen by.
    pub fn aborted(cause: impl Into<Cause>) -> Self {
        Self::Aborted(cause.into())
    }

    /// [`OutcomeUnknown`](Self::OutcomeUnknown), with what it was seen by.
    pub fn outcome_unknown(cause: impl Into<Cause>) -> Self {
        Self::OutcomeUnknown(cause.into())
    }

    /// [`Setup`](Self::Setup), with what it was seen by.
    pub fn setup(cause: impl Into<Cause>) -> Self {
        Self::Setup(cause.into())
    }

    /// [`Other`](Self::Other), with what it was seen by.
    pub fn other(cause: impl Into<Cause>) -> Self {
        Self::Other(cause.into())
    }
}
