//! The statements of transaction scope. None has parameters, so that each passes a pooler without prepared statements,
//! and all of them can go in one simple query.

use std::time::Duration;

use super::{XactRequest, XactStatement};
use crate::{Key, Mode};

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Granted,
    /// Others have it.
    Busy,
    /// The wait was cancelled.
    Cancelled,
    Deadlock,
    /// The server's lock table has no room.
    Full,
    Standby,
    /// The statement is a transaction of its own.
    NoTransaction,
    /// The isolation level.
    Stale(String),
    /// Nothing of ours.
    Unreadable,
}

impl Outcome {
    pub(super) fn of(answer: &str) -> Self {
        match answer {
            "granted" => Self::Granted,
            "busy" => Self::Busy,
            "cancelled" => Self::Cancelled,
            "deadlock" => Self::Deadlock,
            "full" => Self::Full,
            "standby" => Self::Standby,
            "no transaction" => Self::NoTransaction,
            other => match other.strip_prefix(ISOLATED) {
                Some(isolation) => Self::Stale(isolation.to_owned()),
                None => Self::Unreadable,
            },
        }
    }
}

/// One attempt, in one statement if it is for one key.
pub(super) fn attempt(request: &XactRequest) -> XactStatement {
    match request.keys.as_slice() {
        [] => XactStatement::new(None, ask(request, "'granted'::pg_catalog.text"), Duration::ZERO),
        [key] => {
            let attempt = call(*key, request.mode, TRY);
            let answer = format!("WHEN {attempt} THEN 'granted'::pg_catalog.text ELSE 'busy'::pg_catalog.text");
            XactStatement::new(None, ask_when(request, &answer), Duration::ZERO)
        }
        keys => {
            // The exception is caught: it gives up what was taken of the others, without a line in the server's log.
            let tries = keys.iter().map(|key| {
                let attempt = call(*key, request.mode, TRY);
                format!("IF NOT {attempt} THEN RAISE lock_not_available; END IF; ")
            });
            let block = block(request, "", &tries.collect::<String>());
            XactStatement::new(Some(block), ask(request, ANSWER), Duration::ZERO)
        }
    }
}

/// A wait of at most `limit` for all keys together.
///
/// The inner block is a savepoint of its own: a limit that runs out, or a cancel request, ends it without an error, with
/// no lock held and the caller's lock_timeout back, without a line in the server's log.
pub(super) fn slice(request: &XactRequest, limit: Duration) -> XactStatement {
    let millis = limit.as_nanos().div_ceil(1_000_000).clamp(1, i32::MAX as u128);
    let waits = request.keys.as_slice().iter().enumerate().map(|(at, key)| {
        let left = if at == 0 {
            format!("'{millis}'")
        } else {
            time_left(millis)
        };
        let wait = call(*key, request.mode, WAIT);
        format!("PERFORM pg_catalog.set_config('lock_timeout', {left}, true); PERFORM {wait}; ")
    });
    let waits = waits.collect::<String>() + "PERFORM pg_catalog.set_config('lock_timeout', before, true); ";
    let declares = "DECLARE before pg_catalog.text := pg_catalog.current_setting('lock_timeout'); \
         begun pg_catalog.timestamptz := pg_catalog.clock_timestamp(); ";
    let block = block(request, declares, &waits);
    XactStatement::new(Some(block), ask(request, ANSWER), limit)
}

/// What is left of `millis` since the block has begun, at least 1 ms and never more than all, whatever the clock does.
fn time_left(millis: u128) -> String {
    format!(
        "GREATEST(1, LEAST({millis}, {millis}::pg_catalog.float8 OPERATOR(pg_catalog.-) \
         (pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) begun) \
         OPERATOR(pg_catalog.*) 1000::pg_catalog.float8)))::pg_catalog.int4::pg_catalog.text"
    )
}

/// Takes all locks or none, and leaves the answer in a setting of the transaction.
fn block(request: &XactRequest, declares: &str, takes: &str) -> String {
    let refused = refusals(request).map(|(refused, _)| refused).join(" OR ");
    let says = |answer: &str| format!("PERFORM pg_catalog.set_config('latchwork.answer', '{answer}', true); ");
    let (busy, granted, cancelled) = (says("busy"), says("granted"), says("cancelled"));
    let (deadlock, full) = (says("deadlock"), says("full"));
    format!(
        "DO $latchwork$ {declares}BEGIN {busy}IF {refused} THEN RETURN; END IF; \
         BEGIN {takes}{granted}\
         EXCEPTION WHEN lock_not_available THEN NULL; WHEN query_canceled THEN {cancelled}\
         WHEN deadlock_detected THEN {deadlock}WHEN out_of_memory THEN {full}\
         END; END $latchwork$"
    )
}

fn ask(request: &XactRequest, answer: &str) -> String {
    ask_when(request, &format!("ELSE {answer}"))
}

/// CASE stops at the first that is true, so nothing is locked where that is refused.
fn ask_when(request: &XactRequest, answer: &str) -> String {
    let refusals = refusals(request).map(|(refused, answer)| format!("WHEN {refused} THEN {answer} "));
    format!("SELECT CASE {}{answer} END AS answer", refusals.concat())
}

fn refusals(request: &XactRequest) -> [(String, &'static str); 3] {
    let is = |level| format!("{ISOLATION} OPERATOR(pg_catalog.=) '{level}'::pg_catalog.text");
    let stale = if request.allow_stale_snapshot {
        "false".to_owned()
    } else {
        format!("NOT ({} OR {})", is("read committed"), is("read uncommitted"))
    };
    [
        (IS_STANDBY.to_owned(), "'standby'::pg_catalog.text"),
        (IS_ALONE.to_owned(), "'no transaction'::pg_catalog.text"),
        (
            stale,
            "pg_catalog.concat('isolation ', pg_catalog.current_setting('transaction_isolation'))",
        ),
    ]
}

fn call(key: Key, mode: Mode, function: &str) -> String {
    let suffix = match mode {
        Mode::Exclusive => "",
        Mode::Shared => "_shared",
    };
    format!("pg_catalog.{function}{suffix}({})", key.sql_arguments())
}

const TRY: &str = "pg_try_advisory_xact_lock";
const WAIT: &str = "pg_advisory_xact_lock";
const IS_STANDBY: &str = "pg_catalog.pg_is_in_recovery()";
/// In a transaction that was begun by a statement before this one, the two differ. A statement that is parsed and run in
/// two messages goes undetected; so this is the second net, below what the library says.
const IS_ALONE: &str = "pg_catalog.transaction_timestamp() OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp()";
const ISOLATION: &str = "pg_catalog.current_setting('transaction_isolation')";
const ISOLATED: &str = "isolation ";
const ANSWER: &str = "pg_catalog.current_setting('latchwork.answer', true)";
