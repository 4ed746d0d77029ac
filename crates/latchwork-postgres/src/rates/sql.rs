//! The statements of the rate limits. Every function and operator is named with its schema, so that nobody's
//! `search_path` replaces it; operators named like this all bind alike, hence the many parentheses.

use std::time::Duration;

/// Nanoseconds since 1970 on the database's clock. `date_part` gives double precision on all versions, in which
/// microseconds since 1970 are whole numbers.
const NOW: &str = "(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) \
     '1000000'::pg_catalog.float8)::pg_catalog.int8 OPERATOR(pg_catalog.*) '1000'::pg_catalog.int8";

/// How far apart the clock readings of two statements at work may be, in nanoseconds: one minute. A theoretical arrival
/// time may lie so far beyond what its quota reaches, since another session has read the clock later; further only when
/// the clock was set back. And a row stays for as long after it has ceased to matter, for a statement that was held up
/// would make it anew by an older clock.
const SLACK: &str = "'60000000000'::pg_catalog.int8";

/// After how long the server ends a statement that is held up, as by a row that somebody has locked: long before its reading
/// of the clock is older than [`SLACK`], and whoever asked was told of an outage by then.
pub(super) const HELD_UP: Duration = Duration::from_secs(20);

/// Charges each row, for `quotas` quotas a row, in one statement.
///
/// Parameters, arrays with one element a row: key, quotas, how many charges are wanted, and how many of them a row that
/// is not there yet allows; then for each quota its step and its tolerance. Rows come in the order of the primary key,
/// so that no two sessions wait for each other. Returns for each row, in the same order, its name, how many charges
/// were allowed (or, below zero, that it is new), and how far the theoretical arrival times lie ahead, in nanoseconds.
///
/// All is decided in `ON CONFLICT DO UPDATE`, which locks the row that is there and takes its latest version. There the
/// row that was to be inserted is all that there is to see; so it brings its place in the arrays, as `-i` in `admitted`,
/// where no other value is below zero.
pub(super) fn charge(quotas: usize) -> String {
    let listed = |each: &dyn Fn(usize) -> String| (1..=quotas).map(each).collect::<Vec<_>>().join(", ");
    let admitted = format!("GREATEST({ZERO}, LEAST({}, {}))", array(WANTED, PLACE), listed(&fits));
    let tats = listed(&|j| format!("tat{j}"));
    let first = listed(&|j| op("c.now", "+", &op("a.first", "*", &array(step(j), "a.i"))));
    let moved = listed(&|j| {
        let by = op(&admitted, "*", &array(step(j), PLACE));
        format!("tat{j} = {}", op(&base(j), "+", &by))
    });
    let ahead = listed(&|j| op(&format!("r.tat{j}"), "-", CLOCK));
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now) \
         INSERT INTO latchwork.rate_limits AS r (key, quotas, admitted, {tats}) \
         SELECT a.key, a.quotas, (OPERATOR(pg_catalog.-) a.i)::pg_catalog.int4, {first} \
         FROM clock AS c CROSS JOIN ROWS FROM (pg_catalog.unnest($1::pg_catalog.int8[]), \
         pg_catalog.unnest($2::pg_catalog.int8[]), pg_catalog.unnest(${FIRST}::pg_catalog.int8[])) \
         WITH ORDINALITY AS a(key, quotas, first, i) \
         ON CONFLICT (key, quotas) DO UPDATE SET admitted = ({admitted})::pg_catalog.int4, {moved} \
         RETURNING r.key, r.quotas, r.admitted, {ahead}"
    )
}

/// The moment of the statement.
const CLOCK: &str = "(SELECT now FROM clock)";

/// The place of a row that is there in the parameters.
const PLACE: &str = "(OPERATOR(pg_catalog.-) excluded.admitted)";

const ZERO: &str = "'0'::pg_catalog.int8";

/// The parameter that says how many charges are wanted.
const WANTED: usize = 3;
/// The parameter that says how many charges a new row allows.
const FIRST: usize = 4;

/// The parameter with the steps of a quota.
const fn step(j: usize) -> usize {
    3 + 2 * j
}

/// The parameter with the tolerances of a quota.
const fn tolerance(j: usize) -> usize {
    4 + 2 * j
}

/// One element of a parameter.
fn array(parameter: usize, place: &str) -> String {
    format!("(${parameter}::pg_catalog.int8[])[{place}]")
}

fn op(left: &str, operator: &str, right: &str) -> String {
    format!("({left} OPERATOR(pg_catalog.{operator}) {right})")
}

/// The furthest that the theoretical arrival time of a quota may reach.
fn reach(j: usize) -> String {
    op(CLOCK, "+", &array(tolerance(j), PLACE))
}

/// Where the theoretical arrival time of a quota is moved on from. When the clock was set back by hours, nobody is to be
/// denied for hours.
fn base(j: usize) -> String {
    let furthest = op(&reach(j), "+", SLACK);
    format!("GREATEST({CLOCK}, LEAST(r.tat{j}, {furthest}))")
}

/// How many charges a quota allows; below zero if the arrival time lies beyond its reach.
fn fits(j: usize) -> String {
    let room = op(&reach(j), "-", &base(j));
    op(&room, "/", &array(step(j), PLACE))
}

/// Deletes the rows that have not mattered for a minute among the next `$3` behind the row (`$1`, `$2`). Returns how many
/// those were, how many of them are gone, and the last; nothing if another session is at it.
///
/// The rows are found in the order of the primary key, since no other index is there: one on the arrival times would
/// have to be changed by each charge. What somebody is charging is skipped, so that a sweep never waits for anybody. The
/// lateral query and the row addresses keep the planner from reading the whole table for each page of it.
pub(super) fn sweep() -> String {
    let over = op(CLOCK, "-", SLACK);
    format!(
        "WITH turn AS MATERIALIZED (SELECT pg_catalog.pg_try_advisory_xact_lock($4::pg_catalog.int8) AS mine), \
         clock AS MATERIALIZED (SELECT {NOW} AS now), \
         page AS MATERIALIZED (SELECT key, quotas, GREATEST(tat1, tat2, tat3, tat4) AS tat FROM latchwork.rate_limits \
         WHERE (SELECT mine FROM turn) AND \
         (key, quotas) OPERATOR(pg_catalog.>) ($1::pg_catalog.int8, $2::pg_catalog.int8) \
         ORDER BY key, quotas LIMIT $3::pg_catalog.int8), \
         doomed AS MATERIALIZED (SELECT r.row FROM page AS p CROSS JOIN LATERAL \
         (SELECT r.ctid AS row FROM latchwork.rate_limits AS r \
         WHERE r.key OPERATOR(pg_catalog.=) p.key AND r.quotas OPERATOR(pg_catalog.=) p.quotas \
         AND GREATEST(r.tat1, r.tat2, r.tat3, r.tat4) OPERATOR(pg_catalog.<) {over} \
         FOR UPDATE OF r SKIP LOCKED) AS r WHERE p.tat OPERATOR(pg_catalog.<) {over}), \
         gone AS (DELETE FROM latchwork.rate_limits AS r \
         WHERE r.ctid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT d.row FROM doomed AS d)) RETURNING 1) \
         SELECT (SELECT pg_catalog.count(*) FROM page), (SELECT pg_catalog.count(*) FROM gone), p.key, p.quotas \
         FROM page AS p ORDER BY p.key DESC, p.quotas DESC LIMIT 1"
    )
}
