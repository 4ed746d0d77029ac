//! What the server's errors mean for us, as the driver brings them.

pub(crate) use latchwork_core::sqlstate::Condition;
use tokio_postgres::Error as DriverError;

/// The condition that an error of the driver brings from the server; `None` if it is not the server's.
pub(crate) fn condition(error: &DriverError) -> Option<Condition> {
    error.code().map(|code| Condition::of(code.code()))
}

/// Whether an error of the driver says that the statement was cancelled.
pub(crate) fn is_cancelled(error: &DriverError) -> bool {
    condition(error) == Some(Condition::Cancelled)
}
