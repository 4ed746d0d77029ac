//! What PostgreSQL's error codes mean for us: the one table of them.
//!
//! See appendix A of PostgreSQL's manual, "PostgreSQL Error Codes".

/// What an error of the server says about a statement of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// Somebody cancelled the statement, or its time was up. The session goes on.
    Cancelled,
    /// The lock table is full, for everybody.
    LockTableFull,
    /// This transaction and others wait for each other.
    Deadlock,
    /// What the transaction has read or written was changed by others meanwhile.
    SerializationFailure,
    /// An earlier statement of the transaction has failed.
    TransactionAborted,
    /// A transaction is open already.
    InTransaction,
    /// The server ends the session.
    SessionEnded,
    /// A table is not there, or is not as it was expected.
    TableMissing,
    /// The role has not the right to do this.
    Forbidden,
    /// The server, or the session, only reads.
    ReadOnly,
    /// Anything else.
    Other,
}

impl Condition {
    /// What a SQLSTATE of five characters means.
    #[must_use]
    pub fn of(code: &str) -> Self {
        match code {
            // serialization_failure
            "40001" => Self::SerializationFailure,
            // query_canceled
            "57014" => Self::Cancelled,
            // out_of_memory, which is what the lock table says when it is full
            "53200" => Self::LockTableFull,
            // deadlock_detected
            "40P01" => Self::Deadlock,
            // in_failed_sql_transaction
            "25P02" => Self::TransactionAborted,
            // active_sql_transaction
            "25001" => Self::InTransaction,
            // admin_shutdown, crash_shutdown, cannot_connect_now, database_dropped, idle_session_timeout,
            // idle_in_transaction_session_timeout, transaction_timeout
            "57P01" | "57P02" | "57P03" | "57P04" | "57P05" | "25P03" | "25P04" => Self::SessionEnded,
            // undefined_table, invalid_schema_name, undefined_column, invalid_column_reference
            "42P01" | "3F000" | "42703" | "42P10" => Self::TableMissing,
            // insufficient_privilege
            "42501" => Self::Forbidden,
            // read_only_sql_transaction
            "25006" => Self::ReadOnly,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_servers_manual_says() {
        for (code, condition) in [
            ("57014", Condition::Cancelled),
            ("40001", Condition::SerializationFailure),
            ("53200", Condition::LockTableFull),
            ("40P01", Condition::Deadlock),
            ("25P02", Condition::TransactionAborted),
            ("25001", Condition::InTransaction),
            ("57P01", Condition::SessionEnded),
            ("57P02", Condition::SessionEnded),
            ("57P03", Condition::SessionEnded),
            ("57P04", Condition::SessionEnded),
            ("57P05", Condition::SessionEnded),
            ("25P03", Condition::SessionEnded),
            ("25P04", Condition::SessionEnded),
            ("42P01", Condition::TableMissing),
            ("3F000", Condition::TableMissing),
            ("42703", Condition::TableMissing),
            ("42P10", Condition::TableMissing),
            ("42501", Condition::Forbidden),
            ("25006", Condition::ReadOnly),
            ("42601", Condition::Other),
            ("53300", Condition::Other),
        ] {
            assert_eq!(Condition::of(code), condition, "{code}");
        }
    }
}
