//! What an error of diesel means. Diesel keeps the SQLSTATE to itself, so there are its own kinds, what the server says
//! without translating it, and what a statement of ours is answered.

use diesel::{
    Connection,
    pg::Pg,
    result::{DatabaseErrorInformation, DatabaseErrorKind, Error},
};
use latchwork_core::xact::{XactLockError, XactWait};

use crate::state;

/// Whether the connection has ended, or nobody knows what is on it.
pub(crate) const fn is_lost(error: &Error) -> bool {
    matches!(
        error,
        Error::DatabaseError(
            DatabaseErrorKind::ClosedConnection | DatabaseErrorKind::UnableToSendCommand,
            _
        ) | Error::BrokenTransactionManager
    )
}

/// Whether it is a serialization failure or a deadlock, as diesel says it.
pub(crate) fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(is_retryable)
}

/// Whether the whole transaction may succeed if it is run again: SQLSTATE 40001 or 40P01.
fn is_retryable(error: &Error) -> bool {
    match error {
        Error::DatabaseError(kind, info) => matches!(sqlstate(kind, &**info), Some("40001" | "40P01")),
        Error::RollbackErrorOnCommit { commit_error, .. } => is_retryable(commit_error),
        _ => false,
    }
}

/// Whether the server's message has this text of ours in it.
pub(crate) fn says(error: &Error, text: &str) -> bool {
    matches!(error, Error::DatabaseError(_, info) if info.message().contains(text))
}

/// What it means for a lock that a statement has failed.
pub(crate) fn lock<C: Connection<Backend = Pg>>(conn: &mut C, wait: &XactWait, error: Error) -> XactLockError {
    if is_lost(&error) {
        state::give_up(conn);
        return wait.lost(error);
    }
    let code = match &error {
        Error::DatabaseError(kind, info) => {
            sqlstate(kind, &**info).or_else(|| was_aborted(conn, &**info).then_some("25P02"))
        }
        _ => None,
    };
    wait.failed(code, error)
}

fn sqlstate(kind: &DatabaseErrorKind, info: &(dyn DatabaseErrorInformation + Send + Sync)) -> Option<&'static str> {
    match kind {
        DatabaseErrorKind::SerializationFailure => Some("40001"),
        DatabaseErrorKind::ReadOnlyTransaction => Some("25006"),
        DatabaseErrorKind::Unknown if info.details().is_some_and(is_cycle) => Some("40P01"),
        // Names of settings are the same in every language.
        DatabaseErrorKind::Unknown
            if info
                .hint()
                .is_some_and(|hint| hint.contains("max_locks_per_transaction")) =>
        {
            Some("53200")
        }
        _ => None,
    }
}

/// Whether the statement was refused because an earlier one had failed. If so, the server says the same of the next one,
/// in whatever language; after any other error it says something else.
fn was_aborted<C: Connection<Backend = Pg>>(conn: &mut C, info: &(dyn DatabaseErrorInformation + Send + Sync)) -> bool {
    matches!(conn.batch_execute("SELECT 1"), Err(again) if says(&again, info.message()))
}

/// Whether details are those of a deadlock: a line for each process, which ends with the process that the next line
/// begins with, and the last with that of the first line. That is so in every language of the server.
fn is_cycle(details: &str) -> bool {
    let waits: Option<Vec<_>> = details.lines().map(first_and_last).collect();
    let waits = waits.unwrap_or_default();
    let next = waits.iter().cycle().skip(1);
    waits.len() > 1 && waits.iter().zip(next).all(|(wait, next)| wait.1 == next.0)
}

/// The first and the last number of a line that has several.
fn first_and_last(line: &str) -> Option<(&str, &str)> {
    let mut numbers = line
        .split(|c: char| !c.is_ascii_digit())
        .filter(|number| !number.is_empty());
    Some((numbers.next()?, numbers.next_back()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadlock_is_a_cycle_of_processes_in_any_language() {
        for details in [
            "Process 71 waits for ShareLock on transaction 812; blocked by process 72.\n\
             Process 72 waits for ShareLock on transaction 811; blocked by process 71.",
            "Process 7 waits for ExclusiveLock on advisory lock [5,0,1,1]; blocked by process 8.\n\
             Process 8 waits for ExclusiveLock on advisory lock [5,0,2,1]; blocked by process 9.\n\
             Process 9 waits for ExclusiveLock on advisory lock [5,0,3,1]; blocked by process 7.",
            "Prozess 71 wartet auf ShareLock-Sperre auf Transaktion 812; blockiert von Prozess 72.\n\
             Prozess 72 wartet auf ShareLock-Sperre auf Transaktion 811; blockiert von Prozess 71.",
            "プロセス71は ShareLock を トランザクション 812 で待機していましたが、プロセス72でブロックされました。\n\
             プロセス72は ShareLock を トランザクション 811 で待機していましたが、プロセス71でブロックされました。",
        ] {
            assert!(is_cycle(details), "{details}");
        }
        for details in [
            "",
            "Key (id)=(1) already exists.",
            "Process 71 waits for ShareLock on transaction 812; blocked by process 72.",
            "Process 71 waits for ShareLock on transaction 812; blocked by process 72.\n\
             Process 73 waits for ShareLock on transaction 811; blocked by process 71.",
            "line 1 of 2\nline 2 of 3",
            "no\nnumbers",
        ] {
            assert!(!is_cycle(details), "{details}");
        }
    }

    #[test]
    fn errors_without_a_kind_of_their_own_are_told_by_what_is_not_translated() {
        let of = |kind, text: &str| {
            let info: Box<dyn DatabaseErrorInformation + Send + Sync> = Box::new(text.to_owned());
            Error::DatabaseError(kind, info)
        };
        assert!(is_retryable(&of(DatabaseErrorKind::SerializationFailure, "any")));
        assert!(is_retryable(&Error::RollbackErrorOnCommit {
            rollback_error: Box::new(Error::BrokenTransactionManager),
            commit_error: Box::new(of(DatabaseErrorKind::SerializationFailure, "any")),
        }));
        assert!(!is_retryable(&of(DatabaseErrorKind::UniqueViolation, "any")));
        assert!(is_lost(&of(DatabaseErrorKind::ClosedConnection, "any")));
        assert!(!is_lost(&of(DatabaseErrorKind::Unknown, "any")));
        assert!(says(&of(DatabaseErrorKind::Unknown, "error: \"ours\""), "ours"));
    }
}
