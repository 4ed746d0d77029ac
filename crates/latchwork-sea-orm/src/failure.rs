//! What an error of SeaORM says of the server and the connection.

use std::error::Error;

use latchwork_core::sqlstate::Condition;
use sea_orm::{
    DbErr, RuntimeErr, TransactionError,
    sqlx::{
        self,
        postgres::{PgDatabaseError, PgSeverity},
    },
};

/// The SQLSTATE, if the server has said it.
pub(crate) fn sqlstate(error: &DbErr) -> Option<String> {
    driver_error(error).and_then(code)
}

/// What the server says, if it was the server.
pub(crate) fn condition(error: &DbErr) -> Option<Condition> {
    sqlstate(error).map(|code| Condition::of(&code))
}

/// Whether the connection has ended.
pub(crate) fn is_lost(error: &DbErr) -> bool {
    match driver_error(error) {
        Some(sqlx::Error::Io(_) | sqlx::Error::Tls(_)) => true,
        Some(error) => is_fatal(error),
        None => false,
    }
}

/// Whether it is the server's word, on a connection that goes on.
///
/// An error that ends the connection can come from a pooler, whose server may have done what it was told.
pub(crate) fn is_refusal(error: &DbErr) -> bool {
    driver_error(error).is_some_and(|error| error.as_database_error().is_some() && !is_fatal(error))
}

/// Whether an error is a serialization failure or a deadlock: the same transaction may then succeed when it is run again.
pub(crate) fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    code_of_any(error).is_some_and(|code| is_conflict_code(&code))
}

fn is_conflict_code(code: &str) -> bool {
    matches!(
        Condition::of(code),
        Condition::SerializationFailure | Condition::Deadlock
    )
}

/// An error of a nested transaction keeps its cause to itself, so that it has to be asked by name.
fn code_of_any(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<DbErr>() {
        return sqlstate(error);
    }
    if let Some(error) = error.downcast_ref::<sqlx::Error>() {
        return code(error);
    }
    match error.downcast_ref::<TransactionError<DbErr>>()? {
        TransactionError::Connection(error) | TransactionError::Transaction(error) => sqlstate(error),
    }
}

fn driver_error(error: &DbErr) -> Option<&sqlx::Error> {
    match error {
        DbErr::Conn(RuntimeErr::SqlxError(error))
        | DbErr::Exec(RuntimeErr::SqlxError(error))
        | DbErr::Query(RuntimeErr::SqlxError(error)) => Some(error),
        _ => None,
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error()?.code().map(Into::into)
}

fn is_fatal(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    let error = error.and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    error.is_some_and(|error| matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_come_from_the_server_is_no_word_of_its() {
        let io = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        let lost = DbErr::Query(RuntimeErr::SqlxError(sqlx::Error::Io(io).into()));
        let custom = DbErr::Custom("as the test wants".to_owned());
        for error in [&lost, &custom] {
            assert!(!is_refusal(error) && condition(error).is_none() && !is_conflict(error));
        }
        assert!(is_lost(&lost) && !is_lost(&custom));
    }
}
