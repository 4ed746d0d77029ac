//! The statements of the rate limits. Every function and operator is named with its schema, so that nobody's
//! `search_path` replaces it; operators named like this all bind alike, hence the many parentheses.

/// Nanoseconds since 1970 on the database's clock. `date_part` gives double precision on all versions, in which
/// microseconds since 1970 are whole numbers.
const NOW: &str = "(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) \
     '1000000'::pg_catalog.float8)::pg_catalog.int8 OPERATOR(pg_catalog.*) '1000'::pg_catalog.int8";

/// How far a theoretical arrival time may lie beyond what its quota reaches before the database's clock must have been
/// set back: one minute in nanoseconds. Less than that is another session whose clock was read later.
const SET_BACK: &str = "'60000000000'::pg_catalog.int8";

/// Charges each row, for `quotas` quotas a row, in one statement.
///
/// Parameters, arrays with one element a row: key, quotas, how many charges are wanted, and how many of them a row that is
/// not there yet allows; then for each quota its step and its tolerance. Rows come in the order of the primary key, so
/// that no two sessions wait for each other. Returns for each row its name, how many charges were allowed (or, below
/// zero, that it is new and which it was), and how far each theoretical arrival time now lies ahead.
///
/// All is decided in `ON CONFLICT DO UPDATE`, which locks the row that is there and takes its latest version. The row
/// brings no values of its own there but its place in the arrays: `-i` in `admitted`, where no other value is below zero.
pub(super) fn charge(quotas: usize) -> String {
    let each = 1..=quotas;
    let tats = each.clone().map(|j| format!("tat{j}")).collect::<Vec<_>>().join(", ");
    let first = each.clone().map(|j| {
        let step = array(5 + 2 * (j - 1), "a.i");
        sum("c.now", "+", &format!("(a.first OPERATOR(pg_catalog.*) {step})"))
    });
    let first = first.collect::<Vec<_>>().join(", ");
    let fits = each.clone().map(fits).collect::<Vec<_>>().join(", ");
    let place = "(OPERATOR(pg_catalog.-) excluded.admitted)";
    let admitted = format!("GREATEST('0'::pg_catalog.int8, LEAST({}, {fits}))", array(3, place));
    let sets = each.clone().map(|j| {
        let step = array(5 + 2 * (j - 1), place);
        let moved = format!("({admitted} OPERATOR(pg_catalog.*) {step})");
        format!("tat{j} = {}", sum(&base(j), "+", &moved))
    });
    let sets = sets.collect::<Vec<_>>().join(", ");
    let ahead = each.map(|j| sum(&format!("r.tat{j}"), "-", CLOCK));
    let ahead = ahead.collect::<Vec<_>>().join(", ");
    format!(
        "WITH clock AS MATERIALIZED (SELECT {NOW} AS now) \
         INSERT INTO latchwork.rate_limits AS r (key, quotas, admitted, {tats}) \
         SELECT a.key, a.quotas, (OPERATOR(pg_catalog.-) a.i)::pg_catalog.int4, {first} \
         FROM clock AS c CROSS JOIN ROWS FROM (pg_catalog.unnest($1::pg_catalog.int8[]), \
         pg_catalog.unnest($2::pg_catalog.int8[]), pg_catalog.unnest($4::pg_catalog.int8[])) \
         WITH ORDINALITY AS a(key, quotas, first, i) \
         ON CONFLICT (key, quotas) DO UPDATE SET admitted = ({admitted})::pg_catalog.int4, {sets} \
         RETURNING r.key, r.quotas, r.admitted, {ahead}"
    )
}

/// The moment of the statement.
const CLOCK: &str = "(SELECT now FROM clock)";

/// One element of a parameter.
fn array(parameter: usize, place: &str) -> String {
    format!("(${parameter}::pg_catalog.int8[])[{place}]")
}

fn sum(left: &str, operator: &str, right: &str) -> String {
    format!("({left} OPERATOR(pg_catalog.{operator}) {right})")
}

/// The furthest that the theoretical arrival time of a quota may reach.
fn reach(j: usize) -> String {
    let tolerance = array(6 + 2 * (j - 1), "(OPERATOR(pg_catalog.-) excluded.admitted)");
    sum(CLOCK, "+", &tolerance)
}

/// Where the theoretical arrival time of a quota is moved on from. One that is there only because the clock was set back
/// counts as a burst that was used up, and no more.
fn base(j: usize) -> String {
    let reach = reach(j);
    let mad = sum(&reach, "+", SET_BACK);
    format!("GREATEST({CLOCK}, CASE WHEN r.tat{j} OPERATOR(pg_catalog.>) {mad} THEN {reach} ELSE r.tat{j} END)")
}

/// How many charges a quota allows. A charge of nothing moves nothing: NULL, which LEAST passes over.
fn fits(j: usize) -> String {
    let step = array(5 + 2 * (j - 1), "(OPERATOR(pg_catalog.-) excluded.admitted)");
    let room = sum(&reach(j), "-", &base(j));
    format!(
        "({room} OPERATOR(pg_catalog./) CASE WHEN {step} OPERATOR(pg_catalog.=) '0'::pg_catalog.int8 THEN NULL ELSE {step} \
         END)"
    )
}

/// Deletes the rows that no longer matter among the next `$3` behind the row (`$1`, `$2`). Returns how many those were,
/// how many of them are gone, and the last; nothing if another session is at it.
///
/// The rows are found in the order of the primary key, since no other index is there: one on the arrival times would
/// have to be changed by each charge. What somebody is charging is skipped, so that a sweep never waits for anybody.
pub(super) fn sweep() -> String {
    format!(
        "WITH turn AS MATERIALIZED (SELECT pg_catalog.pg_try_advisory_xact_lock($4::pg_catalog.int8) AS mine), \
         clock AS MATERIALIZED (SELECT {NOW} AS now), \
         page AS MATERIALIZED (SELECT key, quotas, GREATEST(tat1, tat2, tat3, tat4) AS tat FROM latchwork.rate_limits \
         WHERE (SELECT mine FROM turn) AND \
         (key, quotas) OPERATOR(pg_catalog.>) ($1::pg_catalog.int8, $2::pg_catalog.int8) \
         ORDER BY key, quotas LIMIT $3::pg_catalog.int8), \
         doomed AS MATERIALIZED (SELECT r.key, r.quotas FROM page AS p JOIN latchwork.rate_limits AS r \
         ON r.key OPERATOR(pg_catalog.=) p.key AND r.quotas OPERATOR(pg_catalog.=) p.quotas \
         WHERE p.tat OPERATOR(pg_catalog.<) {CLOCK} \
         AND GREATEST(r.tat1, r.tat2, r.tat3, r.tat4) OPERATOR(pg_catalog.<) {CLOCK} \
         FOR UPDATE OF r SKIP LOCKED), \
         gone AS (DELETE FROM latchwork.rate_limits AS r USING doomed AS d \
         WHERE r.key OPERATOR(pg_catalog.=) d.key AND r.quotas OPERATOR(pg_catalog.=) d.quotas RETURNING 1) \
         SELECT (SELECT pg_catalog.count(*) FROM page), (SELECT pg_catalog.count(*) FROM gone), p.key, p.quotas \
         FROM page AS p ORDER BY p.key DESC, p.quotas DESC LIMIT 1"
    )
}
