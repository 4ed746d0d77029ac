use std::{error::Error, time::Duration};

use super::{LockedError, XactLockError};

impl<E: Error + 'static> LockedError<E> {
    /// Says whether a serialization failure or a deadlock has ended the transaction, in the locks, the body or the commit,
    /// so that running the whole of it again is the way to get over it.
    ///
    /// `is_conflict` says of one error whether it is a library's that has SQLSTATE 40001 or 40P01. It is asked for each in
    /// the [`source()`](Error::source) chain; an [`XactLockError::Deadlock`] in there needs no asking. What has an unknown
    /// outcome is never run again.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::io;
    /// use latchwork_core::xact::LockedError;
    ///
    /// // As if `io` were a database library.
    /// let is_conflict = |error: &(dyn std::error::Error + 'static)| {
    ///     error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    /// };
    /// let body = LockedError::Body(io::Error::from(io::ErrorKind::WouldBlock));
    /// assert!(body.is_worth_another_run(is_conflict));
    /// ```
    #[must_use]
    pub fn is_worth_another_run(&self, is_conflict: impl Fn(&(dyn Error + 'static)) -> bool) -> bool {
        let error: &(dyn Error + 'static) = match self {
            Self::Lock(error) => error,
            Self::Body(error) => error,
            Self::Aborted(cause) => &**cause,
            Self::Begin(_) | Self::OutcomeUnknown(_) => return false,
        };
        let mut chain = std::iter::successors(Some(error), |&error| error.source());
        chain.any(|error| matches!(error.downcast_ref(), Some(XactLockError::Deadlock { .. })) || is_conflict(error))
    }
}

/// How long to wait before the run that comes after `failed` others: 5 ms to 160 ms, longer after each and random, so that
/// those who were in each other's way do not meet again.
///
/// # Examples
///
/// ```
/// use latchwork_core::xact::pause_after;
///
/// assert!(pause_after(1) <= pause_after(3));
/// ```
#[must_use]
pub fn pause_after(failed: u32) -> Duration {
    let most = LEAST_PAUSE * 2_u32.pow(failed.clamp(1, MOST_DOUBLINGS));
    most.mul_f64(0.5 + 0.5 * fastrand::f64())
}

const LEAST_PAUSE: Duration = Duration::from_millis(5);
const MOST_DOUBLINGS: u32 = 5;

#[cfg(test)]
mod tests {
    use std::{fmt, io};

    use super::*;
    use crate::{Key, xact::Cause};

    /// An error of an application's, with what was behind it.
    #[derive(Debug, thiserror::Error)]
    #[error("the application failed")]
    struct AppError(#[source] Cause);

    /// An error of a library's.
    #[derive(Debug, thiserror::Error)]
    #[error("the library failed")]
    struct LibraryError {
        is_conflict: bool,
    }

    type Ended = LockedError<AppError>;

    fn asked(error: &Ended) -> bool {
        error.is_worth_another_run(|error| error.downcast_ref().is_some_and(|it: &LibraryError| it.is_conflict))
    }

    fn library(is_conflict: bool) -> Cause {
        LibraryError { is_conflict }.into()
    }

    fn deadlock(source: Option<Cause>) -> XactLockError {
        let keys = Key::bigint(1).into();
        XactLockError::Deadlock { keys, source }
    }

    #[test]
    fn conflicts_are_found_wherever_they_are_in_the_chain() {
        let wrapped = |cause: Cause| AppError(AppError(cause).into());
        let keys = Key::bigint(1).into();
        for error in [
            Ended::Body(AppError(library(true))),
            Ended::Body(wrapped(library(true))),
            Ended::Body(wrapped(deadlock(None).into())),
            Ended::Lock(deadlock(None)),
            Ended::Lock(deadlock(Some(library(false)))),
            Ended::Lock(XactLockError::Backend {
                keys,
                source: library(true),
            }),
            Ended::Aborted(library(true)),
            Ended::Aborted(wrapped(library(true)).into()),
        ] {
            assert!(asked(&error), "{error:?}");
        }
    }

    #[test]
    fn nothing_else_is_run_again_and_no_outcome_that_is_unknown() {
        let (keys, limit) = (Key::bigint(1).into(), Duration::ZERO);
        for error in [
            Ended::Body(AppError(library(false))),
            Ended::Body(AppError(fmt::Error.into())),
            Ended::Lock(XactLockError::TimedOut { keys, limit }),
            Ended::Aborted(io::Error::other("as the test wants").into()),
            Ended::Begin(library(true)),
            Ended::OutcomeUnknown(library(true)),
        ] {
            assert!(!asked(&error), "{error:?}");
        }
    }

    #[test]
    fn pauses_grow_up_to_a_bound() {
        for (failed, most) in [(0, 10), (1, 10), (2, 20), (3, 40), (5, 160), (6, 160), (u32::MAX, 160)] {
            let (most, paused) = (Duration::from_millis(most), pause_after(failed));
            assert!((most / 2..=most).contains(&paused), "{failed}: {paused:?}");
        }
    }
}
