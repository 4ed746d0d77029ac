//! What errors of diesel-async mean for us. It keeps SQLSTATE to itself, and passes on a few kinds of error only.

mod texts;

use std::error::Error as StdError;

use diesel::result::{DatabaseErrorKind, Error};

/// Whether the driver says that the connection cannot be used any more.
pub(crate) fn is_lost(error: &Error) -> bool {
    matches!(
        error,
        Error::DatabaseError(
            DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection,
            _
        )
    )
}

/// What the server has said, in its language.
pub(crate) fn message(error: &Error) -> Option<&str> {
    match error {
        Error::DatabaseError(_, information) => Some(information.message()),
        _ => None,
    }
}

/// What the server hints at when its lock table is full.
const LOCK_TABLE: &str = "max_locks_per_transaction";

/// in_failed_sql_transaction
pub(crate) const ABORTED: &str = "25P02";

/// The SQLSTATE, where the kind tells it.
pub(crate) fn sqlstate(error: &Error) -> Option<&'static str> {
    match error {
        Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => Some("40001"),
        Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _) => Some("25006"),
        // Names of settings are the same in every language.
        Error::DatabaseError(_, information) if information.hint().is_some_and(|hint| hint.contains(LOCK_TABLE)) => {
            Some("53200")
        }
        _ => None,
    }
}

/// Whether an error is a serialization failure or a deadlock.
pub(crate) fn is_conflict(error: &(dyn StdError + 'static)) -> bool {
    match error.downcast_ref::<Error>() {
        Some(Error::DatabaseError(DatabaseErrorKind::SerializationFailure, _)) => true,
        Some(Error::DatabaseError(_, information)) => texts::is_conflict(information.message()),
        Some(Error::RollbackErrorOnCommit { commit_error, .. }) => is_conflict(&**commit_error),
        Some(_) => false,
        // An error that is transparent for another hides it, but has its text.
        None => texts::is_conflict(&error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use latchwork_core::{
        Key,
        xact::{LockedError, XactLockError, XactRequest, XactWait},
    };

    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum OrderError {
        #[error("the order failed")]
        Lock(#[source] XactLockError),
        #[error("the order failed")]
        Database(#[source] Error),
        #[error(transparent)]
        Shown(#[from] Error),
    }

    fn said(kind: DatabaseErrorKind, message: &str) -> Error {
        Error::DatabaseError(kind, Box::new(message.to_owned()))
    }

    fn lock(answer: &str) -> OrderError {
        let mut wait = XactWait::attempt(XactRequest::new(Key::bigint(1)));
        OrderError::Lock(wait.answered(answer).unwrap_err())
    }

    #[test]
    fn conflicts_are_found_wherever_they_are_in_the_chain() {
        let unknown = |message| said(DatabaseErrorKind::Unknown, message);
        let of_commit = Error::RollbackErrorOnCommit {
            rollback_error: Box::new(Error::NotInTransaction),
            commit_error: Box::new(said(DatabaseErrorKind::SerializationFailure, "in any words")),
        };
        for error in [
            lock("deadlock"),
            OrderError::Database(said(DatabaseErrorKind::SerializationFailure, "in any words")),
            OrderError::Database(unknown("deadlock detected")),
            OrderError::Database(of_commit),
            OrderError::Shown(unknown("Verklemmung (Deadlock) entdeckt")),
            OrderError::Shown(unknown("could not serialize access due to concurrent update")),
        ] {
            assert!(LockedError::Body(error).is_worth_another_run(is_conflict));
        }
        for error in [
            lock("cancelled"),
            OrderError::Database(unknown("the row says: deadlock detected")),
            OrderError::Shown(Error::NotFound),
        ] {
            assert!(!LockedError::Body(error).is_worth_another_run(is_conflict));
        }
    }

    #[test]
    fn what_was_not_committed_for_a_conflict_is_worth_another_try_and_an_unknown_outcome_is_not() {
        let conflict = || said(DatabaseErrorKind::SerializationFailure, "in any words").into();
        type Ended = LockedError<OrderError>;
        assert!(Ended::Aborted(conflict()).is_worth_another_run(is_conflict));
        assert!(!Ended::OutcomeUnknown(conflict()).is_worth_another_run(is_conflict));
        assert!(!Ended::Begin(conflict()).is_worth_another_run(is_conflict));
    }
}
