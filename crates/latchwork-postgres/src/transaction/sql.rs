//! The two statements of transaction scope. Both are simple queries without parameters, so that they cost one round
//! trip and pass a pooler that has no prepared statements.

use std::time::Duration;

use latchwork_core::{Key, Mode};
use tokio_postgres::SimpleQueryRow;

use crate::sql::arguments;

/// One lock, as it is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub(super) key: Key,
    pub(super) mode: Mode,
    pub(super) allow_stale_snapshot: bool,
}

/// What the last row of a statement of ours says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Granted,
    /// Somebody else has it.
    Busy,
    /// The wait was cancelled.
    Cancelled,
    Standby,
    /// The isolation level.
    Stale(String),
}

impl Request {
    pub(super) fn new(key: Key, mode: Mode) -> Self {
        Self {
            key,
            mode,
            allow_stale_snapshot: false,
        }
    }

    /// One attempt.
    pub(super) fn attempt(self) -> String {
        let (refused, attempt) = (self.refused(), self.call("pg_try_advisory_xact_lock"));
        format!("SELECT CASE WHEN {refused} THEN NULL ELSE {attempt} END, false, {IS_STANDBY}, {ISOLATION}")
    }

    /// A wait of at most `limit`, and one attempt at its end.
    ///
    /// The inner block is a savepoint of its own: a limit that runs out, or a cancel request, ends it without an error, with
    /// the lock not held and the caller's lock_timeout back, without a line in the server's log.
    pub(super) fn slice(self, limit: Duration) -> String {
        let limit = limit.as_nanos().div_ceil(1_000_000).clamp(1, i32::MAX as u128);
        let (refused, attempt) = (self.refused(), self.call("pg_try_advisory_xact_lock"));
        let wait = self.call("pg_advisory_xact_lock");
        format!(
            "DO $latchwork$ \
             DECLARE before pg_catalog.text := pg_catalog.current_setting('lock_timeout'); \
             BEGIN \
             PERFORM pg_catalog.set_config('latchwork.cancelled', 'f', true); \
             IF {refused} THEN RETURN; END IF; \
             BEGIN \
             PERFORM pg_catalog.set_config('lock_timeout', '{limit}', true); \
             PERFORM {wait}; \
             PERFORM pg_catalog.set_config('lock_timeout', before, true); \
             EXCEPTION WHEN lock_not_available THEN NULL; \
             WHEN query_canceled THEN PERFORM pg_catalog.set_config('latchwork.cancelled', 't', true); \
             END; \
             END $latchwork$; \
             SELECT CASE WHEN {refused} OR {CANCELLED} THEN NULL ELSE {attempt} END, \
             {CANCELLED}, {IS_STANDBY}, {ISOLATION}"
        )
    }

    fn refused(self) -> String {
        let is = |level| format!("{ISOLATION} OPERATOR(pg_catalog.=) '{level}'");
        let stale = format!("NOT ({} OR {})", is("read committed"), is("read uncommitted"));
        if self.allow_stale_snapshot {
            IS_STANDBY.to_owned()
        } else {
            format!("({IS_STANDBY} OR {stale})")
        }
    }

    fn call(self, function: &str) -> String {
        let suffix = match self.mode {
            Mode::Exclusive => "",
            Mode::Shared => "_shared",
        };
        format!("pg_catalog.{function}{suffix}({})", arguments(self.key))
    }
}

/// Reads the row of either statement.
pub(super) fn outcome(row: &SimpleQueryRow) -> Option<Outcome> {
    let column = |index| row.try_get(index).ok().flatten();
    Some(match (column(0), column(1)?, column(2)?) {
        (Some("t"), ..) => Outcome::Granted,
        (Some(_), ..) => Outcome::Busy,
        (None, "t", _) => Outcome::Cancelled,
        (None, _, "t") => Outcome::Standby,
        (None, ..) => Outcome::Stale(column(3)?.to_owned()),
    })
}

const IS_STANDBY: &str = "pg_catalog.pg_is_in_recovery()";
const ISOLATION: &str = "pg_catalog.current_setting('transaction_isolation')";
const CANCELLED: &str = "pg_catalog.current_setting('latchwork.cancelled')::pg_catalog.bool";
