//! Which failures are worth another run, and when.

use std::error::Error;
use std::thread;
use std::time::Duration;

use latchwork_core::xact::{LockedError, XactLockError};

use crate::errors;

/// Whether a serialization failure or a deadlock was behind it, in the lock, the body or the commit.
pub(crate) fn may_help<E: Error + 'static>(error: &LockedError<E>) -> bool {
    match error {
        LockedError::Lock(XactLockError::Deadlock { .. }) => true,
        LockedError::Lock(error) => is_caused(error),
        LockedError::Body(error) => is_caused(error),
        LockedError::Aborted(cause) => is_caused(&**cause),
        _ => false,
    }
}

fn is_caused(error: &(dyn Error + 'static)) -> bool {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    chain.into_iter().any(|error| {
        error.downcast_ref().is_some_and(errors::is_retryable)
            || matches!(error.downcast_ref(), Some(XactLockError::Deadlock { .. }))
    })
}

/// Waits before the run that comes after `failed` others, so that those who were in each other's way do not meet again.
pub(crate) fn pause(failed: u32) {
    let most = LEAST_PAUSE * 2_u32.pow(failed.min(MOST_DOUBLINGS));
    thread::sleep(most.mul_f64(0.5 + 0.5 * fastrand::f64()));
}

const LEAST_PAUSE: Duration = Duration::from_millis(5);
const MOST_DOUBLINGS: u32 = 5;
