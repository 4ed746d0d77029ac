//! From facts to findings.

use std::time::Duration;

use latchwork_postgres::{
    ConnectError,
    checks::{CheckError, ServerFacts},
    inspect::InspectError,
    schema::SchemaState,
    survey::{Ahead, Room, Survey},
};

use super::Finding;
use crate::failure::chain;

/// Why there is no session to examine anything with. The texts of these errors say what to do.
pub(super) fn refused(error: &ConnectError) -> Finding {
    let about = match error {
        ConnectError::Refused { source, .. } => match source {
            CheckError::Standby => "primary",
            CheckError::SharedSessions { .. } | CheckError::UnknownPooler => "pooler",
            CheckError::NoExclusion { .. } => "exclusion",
            _ => "version",
        },
        _ => "connection",
    };
    Finding::unfit(about, chain(error), "")
}

/// What each connect finds out.
pub(super) fn checked(server: &ServerFacts) -> [Finding; 4] {
    [
        version(server),
        Finding::ok("primary", "it is no standby, whose locks would exclude nobody"),
        pooler(server),
        Finding::ok("exclusion", "two sessions kept each other out, and pg_locks showed it"),
    ]
}

/// Why there is no survey of a server that was connected to.
pub(super) fn not_examined(error: &InspectError) -> Finding {
    Finding::unfit(
        "survey",
        format!("the examination has ended midway: {}", chain(error)),
        "see to that, and examine it again: what is not told here is not known",
    )
}

/// Judges all but the speed. `silence` is how long a session of ours may be silent.
pub(super) fn judge(survey: &Survey, silence: Duration) -> Vec<Finding> {
    let mut findings = vec![connection(survey)];
    findings.extend(checked(&survey.server));
    findings.push(lock_table(survey));
    findings.extend(timeouts(survey));
    findings.push(keepalives(survey, silence));
    findings.extend(survey.sessions.iter().map(room));
    findings.push(privileges(survey));
    findings.push(clock(survey));
    findings.push(schema(survey));
    findings.push(round_trip(survey));
    findings
}

fn connection(survey: &Survey) -> Finding {
    let how = match (&survey.tls, survey.tcp) {
        (Some(version), _) => format!("encrypted with {version}"),
        (None, true) => "not encrypted".to_owned(),
        (None, false) => "through a unix socket".to_owned(),
    };
    let (role, database) = (&survey.role, &survey.server.database);
    Finding::ok("connection", format!("as {role} to the database {database}, {how}"))
}

fn version(server: &ServerFacts) -> Finding {
    let (about, product) = ("version", &server.product);
    match server.major() {
        13 => Finding::warning(
            about,
            format!(
                "{product}: it can't end a session that is silent, so a holder that vanishes is found by keepalive"
            ),
            "upgrade to 14 or later",
        ),
        14..=NEWEST => Finding::ok(about, product),
        _ => Finding::warning(
            about,
            format!("{product}: newer than what this program was tested on ({NEWEST})"),
            "look for a newer version of this program",
        ),
    }
}

fn pooler(server: &ServerFacts) -> Finding {
    if !server.pooled {
        return Finding::ok("pooler", "none: the server itself has answered");
    }
    Finding::warning(
        "pooler",
        "a pooler in session mode: it may close a connection that holds locks, and keepalive ends at it",
        "connect to the server itself, or see that the pooler closes no client that is silent for some seconds",
    )
}

fn lock_table(survey: &Survey) -> Finding {
    let (about, used, capacity) = ("lock table", survey.locks_in_use, survey.server.lock_capacity);
    let says =
        format!("{used} of about {capacity} locks of all kinds are in use; a process of ours takes a quarter at most");
    let advice = "raise max_locks_per_transaction, or find out with pg_locks who holds so many";
    match percent(used, capacity) {
        0..50 => Finding::ok(about, says),
        50..80 => Finding::warning(about, says, advice),
        _ => Finding::unfit(about, says, advice),
    }
}

/// What would end a holder that does nothing wrong.
fn timeouts(survey: &Survey) -> Vec<Finding> {
    let about = "timeouts";
    let ending = |name: &str| {
        matches!(
            name,
            "statement_timeout"
                | "lock_timeout"
                | "transaction_timeout"
                | "idle_in_transaction_session_timeout"
                | "idle_session_timeout"
        )
    };
    let mut findings = Vec::new();
    for timeout in survey.timeouts.iter().filter(|timeout| ending(&timeout.name)) {
        let name = &timeout.name;
        // Ours, and as long as we want it.
        let is_lease = name == "idle_session_timeout";
        if let Some(limit) = timeout.for_us.filter(|_| !is_lease) {
            findings.push(Finding::unfit(
                about,
                format!("{name} is {limit:?} for our sessions, although they turn it off"),
                "find out who sets it, such as a pooler",
            ));
        } else if let Some(limit) = timeout.by_default.filter(|limit| *limit < SHORT) {
            findings.push(Finding::warning(
                about,
                format!("{name} is {limit:?}: our sessions turn it off, but it may end transactions of yours that hold locks"),
                format!("ALTER ROLE {} SET {name} to more than the work takes", survey.role),
            ));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(about, "none ends a session of ours that holds locks"));
    }
    findings
}

/// Whether a holder that vanishes is noticed.
fn keepalives(survey: &Survey, silence: Duration) -> Finding {
    let about = "keepalives";
    let of = |name: &str| {
        let timeout = survey.timeouts.iter().find(|timeout| timeout.name == name);
        timeout.and_then(|timeout| timeout.for_us)
    };
    let advice =
        "the server does not take the settings of our sessions; a holder that vanishes holds on until TCP gives up";
    match (of("idle_session_timeout"), of("tcp_keepalives_idle")) {
        (Some(limit), _) if limit <= silence * 2 => Finding::ok(
            about,
            format!("a holder that vanishes is ended by the server after {limit:?} of silence"),
        ),
        (_, Some(idle)) if survey.tcp && idle <= silence => Finding::ok(
            about,
            format!("a holder that vanishes is found by TCP keepalive, which begins after {idle:?}"),
        ),
        _ if !survey.tcp => Finding::ok(about, "a unix socket tells when its other end is gone"),
        _ => Finding::warning(about, "nothing ends a holder that vanishes soon", advice),
    }
}

fn room(room: &Room) -> Finding {
    let (about, free) = ("sessions", room.limit.saturating_sub(room.taken));
    let says = format!(
        "{} of {} that the {} may have are taken",
        room.taken, room.limit, room.of
    );
    let advice = match room.of.as_str() {
        "role" => "raise its limit by ALTER ROLE .. CONNECTION LIMIT",
        "database" => "raise its limit by ALTER DATABASE .. CONNECTION LIMIT",
        _ => "close idle ones, or raise max_connections; a process of ours takes 1, and up to 4 more while it waits",
    };
    match free {
        0..2 => Finding::unfit(about, says, advice),
        2..10 => Finding::warning(about, says, advice),
        _ => Finding::ok(about, says),
    }
}

fn privileges(survey: &Survey) -> Finding {
    let role = &survey.role;
    let mut missing = Vec::new();
    if !survey.sees_others {
        missing.push(format!(
            "GRANT pg_read_all_stats TO {role} to see others' hosts in `ls`"
        ));
    }
    if !survey.ends_others {
        missing.push(format!(
            "GRANT pg_signal_backend TO {role} for `break` of others' sessions"
        ));
    }
    if !survey.may_install {
        missing.push(format!(
            "GRANT CREATE ON DATABASE {} TO {role} for `schema install`",
            survey.server.database
        ));
    }
    // A service needs none of them.
    let finding = Finding::ok("privileges", "locks, slots and leaders need none");
    if missing.is_empty() {
        finding
    } else {
        finding.advise(missing.join("; "))
    }
}

fn clock(survey: &Survey) -> Finding {
    let (offset, ahead) = survey.clock;
    let whose = match ahead {
        Ahead::Server => "the server's clock is ahead by",
        _ => "this machine's clock is ahead by",
    };
    let says = format!("{whose} {offset:?}, give or take {:?}", survey.round_trip / 2);
    if offset < CLOCK_LIMIT + survey.round_trip {
        return Finding::ok("clock", says);
    }
    Finding::warning(
        "clock",
        says,
        "locks do not need it, but schedules and times in logs do: set both by NTP",
    )
}

fn schema(survey: &Survey) -> Finding {
    let (about, role) = ("schema", &survey.role);
    match survey.schema {
        Some(SchemaState::Right) if survey.may_use_schema => Finding::ok(about, "the tables are those of this version"),
        Some(SchemaState::Missing) => {
            let says = format!("the tables are missing: locks need none, and {NEED_TABLES} do not work without them");
            Finding::ok(about, says).advise("`latchwork schema install` makes them, if you use any of these")
        }
        Some(state) if state != SchemaState::Right => {
            let says = state.require().err().map(|error| error.to_string()).unwrap_or_default();
            Finding::warning(about, says, "`latchwork schema install`, or another version of this")
        }
        _ => Finding::warning(
            about,
            format!("the role {role} may not use the tables: {NEED_TABLES} do not work"),
            format!(
                "GRANT USAGE ON SCHEMA latchwork TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \
                 latchwork TO {role}"
            ),
        ),
    }
}

fn round_trip(survey: &Survey) -> Finding {
    let (median, longest) = (survey.round_trip, survey.longest_round_trip);
    let says = format!("{median:?} in the median, {longest:?} at most");
    let advice = "move the service nearer to the server, or see what holds the network up";
    if longest >= PING_LIMIT {
        return Finding::unfit("round trip", says, advice);
    }
    if median >= SLOW {
        return Finding::warning("round trip", says, advice);
    }
    Finding::ok("round trip", says)
}

/// Judges what was measured by what is needed.
pub(super) fn throughput(cycles: f64, tasks: u32, needed: Option<u32>) -> Finding {
    let about = "throughput";
    let says = format!("{cycles:.0} acquires and releases a second by {tasks} tasks over this path");
    let Some(needed) = needed else {
        return Finding::ok(about, says);
    };
    let says = format!("{says}, and {needed} are needed");
    let needed = f64::from(needed);
    if cycles >= 2.0 * needed {
        Finding::ok(about, says)
    } else if cycles >= needed {
        Finding::warning(
            about,
            says,
            "there is little to spare: more tasks at once, or a nearer server",
        )
    } else {
        Finding::unfit(
            about,
            says,
            "more tasks at once, a nearer server, or fewer and longer locks",
        )
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    part.saturating_mul(100) / whole.max(1)
}

/// What does not go without the tables.
const NEED_TABLES: &str = "rate limits, idempotency and ticks (`latchwork run --tick`)";
/// The newest major version that is tested.
const NEWEST: u32 = 18;
/// A limit below which a transaction with a lock in it may be ended in the course of its work.
const SHORT: Duration = Duration::from_secs(60);
const CLOCK_LIMIT: Duration = Duration::from_secs(1);
const SLOW: Duration = Duration::from_millis(50);
/// How long a session of ours may be without an answer.
const PING_LIMIT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::{super::Level, *};

    #[test]
    fn a_load_fits_with_room_to_spare_or_is_told() {
        let table = [
            (None, Level::Ok),
            (Some(500), Level::Ok),
            (Some(501), Level::Warning),
            (Some(1_000), Level::Warning),
            (Some(1_001), Level::Unfit),
        ];
        for (needed, level) in table {
            assert_eq!(throughput(1_000.0, 64, needed).level, level, "{needed:?}");
        }
    }
}
