//! The statements of transaction scope. None has parameters, so that each passes a pooler without prepared statements,
//! and all of them can go in one simple query.

use std::time::Duration;

use super::{FencedLimits, XactRequest, XactStatement};
use crate::{Key, Mode, fence::Fence};

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
    /// The grant to be proved is not in force.
    Superseded,
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
            "superseded" => Self::Superseded,
            "no transaction" => Self::NoTransaction,
            other => match other.strip_prefix(ISOLATED) {
                Some(isolation) => Self::Stale(isolation.to_owned()),
                None => Self::Unreadable,
            },
        }
    }
}

/// What is known of the transaction before anything is asked in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Unknown,
    /// It has just begun, in READ COMMITTED. So much is not asked then: each question costs the server about as much as
    /// the lock itself.
    Fresh,
}

/// One attempt for one key, which goes in one statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) key: Key,
    mode: Mode,
    refusals: Refusals,
}

impl Attempt {
    /// Answers with a text.
    pub(super) fn text(&self) -> String {
        self.answer(&self.key.sql_arguments(), Form::Text)
    }

    /// The same with the key in parameters.
    pub(super) fn text_with_parameters(&self) -> String {
        let arguments = match self.key.as_pair() {
            None => "$1::pg_catalog.int8",
            Some(_) => "$1::pg_catalog.int4, $2::pg_catalog.int4",
        };
        self.answer(arguments, Form::Text)
    }

    /// Answers with the text's place in [`ANSWERS`].
    pub(super) fn place(&self) -> String {
        self.answer(&self.key.sql_arguments(), Form::Place)
    }

    fn answer(&self, arguments: &str, form: Form) -> String {
        let attempt = call_with(arguments, self.mode, TRY);
        let (granted, busy) = (form.says("granted"), form.says("busy"));
        self.refusals
            .or_when(&format!("WHEN {attempt} THEN {granted} ELSE {busy}"), form)
    }
}

/// One attempt, in one statement if it is for one key.
pub(super) fn attempt(request: &XactRequest, standing: Standing) -> XactStatement {
    let (mode, refusals) = (request.mode, Refusals::of(request, standing));
    match request.keys.as_slice() {
        [] => XactStatement::new(None, refusals.or("'granted'"), Duration::ZERO),
        [key] => XactStatement::attempt(Attempt {
            key: *key,
            mode,
            refusals,
        }),
        keys => {
            // The exception is caught: it gives up what was taken of the others, without a line in the server's log.
            let tries = keys.iter().map(|key| {
                let attempt = call(*key, mode, TRY);
                format!("IF NOT {attempt} THEN RAISE lock_not_available; END IF; ")
            });
            let block = block(refusals, "", &tries.collect::<String>());
            XactStatement::new(Some(block), refusals.or(ANSWER), Duration::ZERO)
        }
    }
}

/// A wait of at most `limit` for all keys together.
///
/// The inner block is a savepoint of its own: a limit that runs out, or a cancel request, ends it without an error, with
/// no lock held and the caller's lock_timeout back, without a line in the server's log.
pub(super) fn slice(request: &XactRequest, standing: Standing, limit: Duration) -> XactStatement {
    let refusals = Refusals::of(request, standing);
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
    let waits = waits
        + &request
            .fence
            .map(|(_, limits)| ends_by_itself(limits))
            .unwrap_or_default();
    let answer = match &request.fence {
        Some((fence, _)) => format!(
            "CASE WHEN {ANSWER} OPERATOR(pg_catalog.<>) 'granted'::pg_catalog.text OR {} THEN {ANSWER} \
             ELSE 'superseded'::pg_catalog.text END",
            in_force(fence)
        ),
        None => ANSWER.to_owned(),
    };
    let block = block(refusals, declares, &waits);
    XactStatement::new(Some(block), refusals.or(&answer), limit)
}

/// A transaction that is paused must not keep the next holder waiting for ever.
fn ends_by_itself(limits: FencedLimits) -> String {
    let millis = |limit: Duration| limit.as_millis().clamp(1, i32::MAX as u128);
    let (idle, whole) = (millis(limits.idle), millis(limits.transaction));
    format!(
        "PERFORM pg_catalog.set_config('idle_in_transaction_session_timeout', '{idle}', true); \
         IF pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog.>=) 170000 THEN \
         PERFORM pg_catalog.set_config('transaction_timeout', '{whole}', true); END IF; "
    )
}

/// Whether one session holds the lock and the grant's own key, in one look at the lock table.
fn in_force(fence: &Fence) -> String {
    let is = |column: &str, value: &dyn std::fmt::Display, kind: &str| {
        format!("{column} OPERATOR(pg_catalog.=) '{value}'::pg_catalog.{kind}")
    };
    let holds = |key: Key, mode| {
        let mode = match mode {
            Mode::Exclusive => "ExclusiveLock",
            Mode::Shared => "ShareLock",
        };
        let parts = [
            is("classid", &key.classid(), "oid"),
            is("objid", &key.objid(), "oid"),
            is("objsubid", &key.objsubid(), "int2"),
            is("mode", &mode, "text"),
        ];
        format!("({})", parts.join(" AND "))
    };
    format!(
        "EXISTS (SELECT 1 FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory'::pg_catalog.text \
         AND granted AND database OPERATOR(pg_catalog.=) (SELECT oid FROM pg_catalog.pg_database \
         WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) AND ({} OR {}) \
         GROUP BY pid HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) 2::pg_catalog.int8)",
        holds(fence.key(), fence.mode()),
        holds(fence.grant_key(), Mode::Exclusive),
    )
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
fn block(refusals: Refusals, declares: &str, takes: &str) -> String {
    let refused = refusals.each(Form::Text).map(|(refused, _)| refused);
    let refused = refused.collect::<Vec<_>>().join(" OR ");
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

/// Where no lock is taken, and what is answered then.
#[derive(Debug, Clone, Copy)]
struct Refusals {
    standing: Standing,
    allow_stale_snapshot: bool,
}

/// How an answer is put.
#[derive(Debug, Clone, Copy)]
enum Form {
    Text,
    /// As a number: the place in [`ANSWERS`], from 1.
    Place,
}

impl Form {
    fn says(self, answer: &str) -> String {
        match self {
            Self::Text => format!("'{answer}'"),
            Self::Place => {
                let place = ANSWERS.iter().position(|one| *one == answer);
                place.map_or(0, |place| place + 1).to_string()
            }
        }
    }
}

impl Refusals {
    const fn of(request: &XactRequest, standing: Standing) -> Self {
        Self {
            standing,
            allow_stale_snapshot: request.allow_stale_snapshot,
        }
    }

    /// A refusal, or else a text.
    fn or(self, answer: &str) -> String {
        self.or_when(&format!("ELSE {answer}"), Form::Text)
    }

    /// CASE stops at the first that is true, so nothing is locked where that is refused.
    fn or_when(self, whens: &str, form: Form) -> String {
        let refusals = self
            .each(form)
            .map(|(refused, answer)| format!("WHEN {refused} THEN {answer} "));
        format!("CASE {}{whens} END", refusals.collect::<String>())
    }

    fn each(self, form: Form) -> impl Iterator<Item = (String, String)> {
        let is = |level| format!("{ISOLATION} OPERATOR(pg_catalog.=) '{level}'::pg_catalog.text");
        let standby = Some((IS_STANDBY.to_owned(), form.says("standby")));
        let is_known = self.standing == Standing::Fresh;
        let alone = (!is_known).then(|| (IS_ALONE.to_owned(), form.says("no transaction")));
        let stale = (!is_known && !self.allow_stale_snapshot).then(|| {
            let answer = match form {
                Form::Text => format!("pg_catalog.concat('{ISOLATED}', {ISOLATION})"),
                Form::Place => {
                    let [repeatable, serializable] =
                        [REPEATABLE, SERIALIZABLE].map(|level| form.says(&format!("{ISOLATED}{level}")));
                    format!("CASE WHEN {} THEN {repeatable} ELSE {serializable} END", is(REPEATABLE))
                }
            };
            let fits = format!("{} OR {}", is("read committed"), is("read uncommitted"));
            (format!("NOT ({fits})"), answer)
        });
        [standby, alone, stale].into_iter().flatten()
    }
}

fn call(key: Key, mode: Mode, function: &str) -> String {
    call_with(&key.sql_arguments(), mode, function)
}

fn call_with(arguments: &str, mode: Mode, function: &str) -> String {
    let suffix = match mode {
        Mode::Exclusive => "",
        Mode::Shared => "_shared",
    };
    format!("pg_catalog.{function}{suffix}({arguments})")
}

const TRY: &str = "pg_try_advisory_xact_lock";
const WAIT: &str = "pg_advisory_xact_lock";
const IS_STANDBY: &str = "pg_catalog.pg_is_in_recovery()";
/// In a transaction that was begun by a statement before this one, the two differ. A statement that is parsed and run in
/// two messages goes undetected; so this is the second net, below what the library says.
const IS_ALONE: &str = "CURRENT_TIMESTAMP OPERATOR(pg_catalog.=) pg_catalog.statement_timestamp()";
const ISOLATION: &str = "pg_catalog.current_setting('transaction_isolation')";
const ISOLATED: &str = "isolation ";
const REPEATABLE: &str = "repeatable read";
const SERIALIZABLE: &str = "serializable";
const ANSWER: &str = "pg_catalog.current_setting('latchwork.answer', true)";

/// All that is answered, with the levels of isolation that are refused.
pub(super) const ANSWERS: [&str; 10] = [
    "granted",
    "busy",
    "cancelled",
    "deadlock",
    "full",
    "standby",
    "superseded",
    "no transaction",
    "isolation repeatable read",
    "isolation serializable",
];
