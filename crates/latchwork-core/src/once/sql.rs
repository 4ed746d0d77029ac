//! The statements of the ledger. Every function and operator is named with its schema, so that nobody's `search_path`
//! replaces it; operators named like this all bind alike, hence the parentheses.

use std::time::Duration;

use super::{RunEnd, TickClaim, micros};
use crate::key::Key;

/// Claims a tick.
///
/// The lock comes before the row: a rival finds it taken and is answered, where it would wait for the row until the
/// other's transaction ends. The lock is let go when the claim can be seen, so there is no moment between the two.
/// Whether the tick is later than that of the row is decided in `ON CONFLICT DO UPDATE`, which takes the latest version of
/// the row, whatever the statement's snapshot has.
///
/// The same claim is granted again, for whoever has not heard the answer.
pub(super) fn claim(claim: &TickClaim) -> String {
    let key = int8(claim.key.as_bigint().unwrap_or_default());
    let name = text(&claim.name);
    let by = claim
        .claimed_by
        .as_deref()
        .map_or_else(|| "pg_catalog.current_setting('application_name')".to_owned(), text);
    let tick = moment(claim.tick);
    let latest = format!("(c.now OPERATOR(pg_catalog.+) {})", span(claim.allowed.min(FOREVER)));
    let number = int8(claim.number);
    let (ended_at, outcome) = match claim.end {
        None => ("NULL::pg_catalog.timestamptz", "NULL::pg_catalog.text".to_owned()),
        // The end of the transaction is not known in it.
        Some(end @ RunEnd::Committed) => ("NULL::pg_catalog.timestamptz", text(end.as_str())),
        Some(end) => ("t.now", text(end.as_str())),
    };
    let replaces = match claim.end {
        Some(RunEnd::Enrolled) => "false".to_owned(),
        _ => "r.tick OPERATOR(pg_catalog.<) excluded.tick OR (r.tick OPERATOR(pg_catalog.=) excluded.tick \
              AND r.claim OPERATOR(pg_catalog.=) excluded.claim)"
            .to_owned(),
    };
    format!(
        "WITH c AS MATERIALIZED (SELECT pg_catalog.clock_timestamp() AS now, {tick} AS tick), \
         t AS MATERIALIZED (SELECT c.now, c.tick, CASE WHEN c.tick OPERATOR(pg_catalog.>) {latest} THEN 'ahead' \
         WHEN pg_catalog.pg_try_advisory_xact_lock({key}) THEN 'mine' ELSE 'busy' END::pg_catalog.text AS turn FROM c), \
         claimed AS (INSERT INTO latchwork.ticks AS r (key, name, tick, claim, claimed_by, claimed_at, ended_at, outcome) \
         SELECT {key}, {name}, t.tick, {number}, {by}, t.now, {ended_at}, {outcome} FROM t \
         WHERE t.turn OPERATOR(pg_catalog.=) 'mine'::pg_catalog.text \
         ON CONFLICT (key) DO UPDATE SET name = excluded.name, tick = excluded.tick, claim = excluded.claim, \
         claimed_by = excluded.claimed_by, claimed_at = excluded.claimed_at, ended_at = excluded.ended_at, \
         outcome = excluded.outcome WHERE {replaces} RETURNING 1) \
         SELECT CASE WHEN t.turn OPERATOR(pg_catalog.=) 'busy'::pg_catalog.text THEN t.turn \
         WHEN t.turn OPERATOR(pg_catalog.=) 'ahead'::pg_catalog.text THEN 'ahead '::pg_catalog.text \
         OPERATOR(pg_catalog.||) (pg_catalog.date_part('epoch', t.tick OPERATOR(pg_catalog.-) t.now) \
         OPERATOR(pg_catalog.*) '1000000'::pg_catalog.float8)::pg_catalog.int8::pg_catalog.text \
         WHEN EXISTS (SELECT 1 FROM claimed) THEN 'claimed'::pg_catalog.text \
         ELSE 'taken'::pg_catalog.text END AS answer FROM t"
    )
}

/// Notes how the run of a claim has ended, unless another was claimed since.
pub(crate) fn record(key: Key, number: i64, end: RunEnd) -> String {
    let (key, number, end) = (
        int8(key.as_bigint().unwrap_or_default()),
        int8(number),
        text(end.as_str()),
    );
    format!(
        "UPDATE latchwork.ticks AS r SET ended_at = pg_catalog.clock_timestamp(), outcome = {end} \
         WHERE r.key OPERATOR(pg_catalog.=) {key} AND r.claim OPERATOR(pg_catalog.=) {number} \
         RETURNING 'recorded'::pg_catalog.text AS answer"
    )
}

fn int8(number: i64) -> String {
    format!("'{number}'::pg_catalog.int8")
}

fn moment(micros: i64) -> String {
    format!(
        "('epoch'::pg_catalog.timestamptz OPERATOR(pg_catalog.+) ('{micros}'::pg_catalog.float8 \
         OPERATOR(pg_catalog.*) '1 microsecond'::pg_catalog.interval))"
    )
}

fn span(duration: Duration) -> String {
    let micros = micros::span(duration);
    format!("('{micros}'::pg_catalog.float8 OPERATOR(pg_catalog.*) '1 microsecond'::pg_catalog.interval)")
}

/// A literal that reads the same whatever `standard_conforming_strings` is. PostgreSQL has no text with a zero byte.
fn text(text: &str) -> String {
    let quoted = text.replace('\0', "\u{fffd}").replace('\\', "\\\\").replace('\'', "''");
    format!("E'{quoted}'::pg_catalog.text")
}

/// Further ahead than that is further than a timestamp reaches.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_their_quotes() {
        assert_eq!(text("it's"), "E'it''s'::pg_catalog.text");
        assert_eq!(text("a\\'b\0"), "E'a\\\\''b\u{fffd}'::pg_catalog.text");
    }
}
