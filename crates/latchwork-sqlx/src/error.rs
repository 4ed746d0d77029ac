//! What errors of sqlx mean for us.

use std::error::Error as StdError;

use latchwork_core::sqlstate::Condition;
use sqlx::{
    Error,
    error::DatabaseError,
    postgres::{PgDatabaseError, PgSeverity},
};

/// What the server has said, if it was the server.
pub(crate) fn condition(error: &Error) -> Option<Condition> {
    let code = error.as_database_error()?.code()?;
    Some(Condition::of(&code))
}

/// Whether the server has never seen the setting that it was asked for: undefined_object.
pub(crate) fn is_setting_unknown(error: &Error) -> bool {
    let Some(error) = error.as_database_error() else {
        return false;
    };
    // Its name is in the text in any language; others' objects can be unknown too.
    error.code().as_deref() == Some("42704") && error.message().contains("latchwork.transaction")
}

/// Whether the connection cannot be used any more.
pub(crate) fn is_broken(error: &Error) -> bool {
    match error {
        Error::Database(error) => is_fatal(&**error),
        Error::Io(_) | Error::Tls(_) | Error::Protocol(_) | Error::WorkerCrashed => true,
        _ => false,
    }
}

/// Whether the server has ended the connection with these words.
fn is_fatal(error: &dyn DatabaseError) -> bool {
    let error = error.try_downcast_ref::<PgDatabaseError>();
    error.is_some_and(|error| matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic))
}

/// Whether it is a serialization failure or a deadlock, as sqlx says it. An error that is transparent for another hides
/// it, and shows what is in it.
pub(crate) fn is_conflict(error: &(dyn StdError + 'static)) -> bool {
    let code = if let Some(error) = error.downcast_ref::<Error>() {
        error.as_database_error().and_then(DatabaseError::code)
    } else if let Some(error) = error.downcast_ref::<Box<dyn DatabaseError>>() {
        error.code()
    } else {
        let error = error.downcast_ref::<PgDatabaseError>();
        error.map(|error| error.code().into())
    };
    let condition = code.map(|code| Condition::of(&code));
    matches!(condition, Some(Condition::SerializationFailure | Condition::Deadlock))
}
