use std::{convert::Infallible, time::Duration};

use super::{Cause, KeySet, XactLockError, XactRequest, XactWait};
use crate::Mode;

/// How a locked transaction takes its locks. It has to be told how long it may wait.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork_core::xact::XactOptions;
///
/// let patient = XactOptions::within(Duration::from_secs(2));
/// let readers = XactOptions::within(Duration::from_secs(2)).shared();
/// # let _ = (patient, readers);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct XactOptions {
    mode: Mode,
    limit: Option<Duration>,
}

impl XactOptions {
    /// Waits for the locks, at most for `limit`. Zero makes one attempt.
    pub const fn within(limit: Duration) -> Self {
        Self {
            mode: Mode::Exclusive,
            limit: Some(limit),
        }
    }

    /// Waits for ever. A holder that never ends then blocks the transaction, and the connection that it has, for as long.
    pub const fn without_limit() -> Self {
        Self {
            mode: Mode::Exclusive,
            limit: None,
        }
    }

    /// Takes shared locks, which exclude exclusive ones only.
    pub const fn shared(self) -> Self {
        Self {
            mode: Mode::Shared,
            ..self
        }
    }

    /// The waits of a transaction for its locks: a new one each time that it is begun.
    pub fn waits_for(self, keys: KeySet) -> impl Fn() -> XactWait + Send + Sync {
        XactRequest::new(keys).with_mode(self.mode).waits(self.limit)
    }

    /// How the keys are locked.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// How long to wait; `None` for ever.
    #[must_use]
    pub const fn limit(&self) -> Option<Duration> {
        self.limit
    }
}

/// Why a locked transaction was not committed, or why that is not known. `E` is the body's own error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockedError<E> {
    /// There is no connection to be had, or no transaction could be begun. The body did not run.
    #[error("no transaction could be begun")]
    Begin(#[source] Cause),
    /// The locks were not granted. The body did not run.
    #[error(transparent)]
    Lock(#[from] XactLockError),
    /// The body's error. Its work was rolled back.
    #[error(transparent)]
    Body(E),
    /// The server has rolled the transaction back: a statement had failed, though the body did not say so, or the commit
    /// itself was refused, as by a deferred constraint. Nothing was stored.
    #[error("the server has rolled the transaction back, and nothing was stored; see the cause")]
    Aborted(#[source] Cause),
    /// The connection ended between COMMIT and its answer, or the body has ended the transaction itself. Its work may be
    /// stored or not.
    #[error("it is not known whether anything was stored; look before you repeat, and see the cause")]
    OutcomeUnknown(#[source] Cause),
}

impl<E> LockedError<E> {
    /// Says whether the limit ran out, which is contention and no failure.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::Lock(error) if error.is_timeout())
    }

    /// The body's error, if that was it. So an error that cannot be a source itself, as `anyhow::Error` or a boxed one, joins
    /// what it was made for.
    ///
    /// # Errors
    ///
    /// What went wrong instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::error::Error;
    /// use latchwork_core::xact::LockedError;
    ///
    /// type Boxed = Box<dyn Error + Send + Sync>;
    ///
    /// fn flat(error: LockedError<Boxed>) -> Boxed {
    ///     error.into_body().unwrap_or_else(Boxed::from)
    /// }
    ///
    /// assert_eq!(flat(LockedError::Body("out of stock".into())).to_string(), "out of stock");
    /// ```
    pub fn into_body(self) -> Result<E, LockedError<Infallible>> {
        Err(match self {
            Self::Body(error) => return Ok(error),
            Self::Begin(cause) => LockedError::Begin(cause),
            Self::Lock(error) => LockedError::Lock(error),
            Self::Aborted(cause) => LockedError::Aborted(cause),
            Self::OutcomeUnknown(cause) => LockedError::OutcomeUnknown(cause),
        })
    }
}
