//! Every statement of the engine, in one place. All functions are named with their schema, so that nobody's
//! `search_path` replaces them.
//!
//! The lock functions stand in a target list over `unnest`, or in the recursive form, where PostgreSQL calls them
//! exactly once for each key; in a WHERE clause or under a LIMIT it may lock keys whose rows it does not return.

use std::time::Duration;

use latchwork_core::{Key, Mode};

/// Asks nothing, to hear that the server is there.
pub(crate) const PING: &str = "SELECT 1";

/// Releases whatever a waiter session may have been granted by a slice that failed.
pub(crate) const UNLOCK_ALL: &str = "SELECT pg_catalog.pg_advisory_unlock_all()";

/// The advisory locks that this session holds.
pub(crate) const OWN_LOCKS: &str = "SELECT classid, objid, objsubid, mode = 'ShareLock' FROM pg_catalog.pg_locks \
     WHERE locktype = 'advisory' AND granted AND pid = pg_catalog.pg_backend_pid()";

/// The advisory keys of this database that somebody queues for.
pub(crate) const WAITED_FOR: &str = "SELECT DISTINCT classid, objid, objsubid FROM pg_catalog.pg_locks \
     WHERE locktype = 'advisory' AND NOT granted AND database = \
     (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())";

/// The second halves of the pairs that somebody holds in this database with a given first half.
pub(crate) const MARKERS: &str = "SELECT DISTINCT objid FROM pg_catalog.pg_locks \
     WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid = $1 AND database = \
     (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())";

/// The two spaces of keys and the two modes have functions, and so statements, of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pair: bool,
    mode: Mode,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [
        Self {
            pair: false,
            mode: Mode::Exclusive,
        },
        Self {
            pair: false,
            mode: Mode::Shared,
        },
        Self {
            pair: true,
            mode: Mode::Exclusive,
        },
        Self {
            pair: true,
            mode: Mode::Shared,
        },
    ];

    pub(crate) const fn of(key: Key, mode: Mode) -> Self {
        Self {
            pair: key.as_pair().is_some(),
            mode,
        }
    }

    /// The place of this kind in [`Kind::ALL`].
    pub(crate) const fn index(self) -> usize {
        (if self.pair { 2 } else { 0 }) + matches!(self.mode, Mode::Shared) as usize
    }

    pub(crate) const fn is_pair(self) -> bool {
        self.pair
    }

    const fn suffix(self) -> &'static str {
        match self.mode {
            Mode::Exclusive => "",
            Mode::Shared => "_shared",
        }
    }

    /// Calls a function once for each key, in order, and returns one row: the answers, or for many 64-bit keys only those
    /// that were answered with false, which is less to build, send and read. One key alone needs no scan.
    fn for_each_key(self, function: &str, keys: Number) -> String {
        match (keys, self.pair) {
            (Number::One, false) => format!("SELECT ARRAY[{function}($1::pg_catalog.int8)]"),
            (Number::One, true) => format!("SELECT ARRAY[{function}($1::pg_catalog.int4, $2::pg_catalog.int4)]"),
            // OFFSET 0 keeps the keys in a subquery of their own, from which they stream.
            (Number::Many, false) => format!(
                "SELECT pg_catalog.array_agg(k) FILTER (WHERE NOT {function}(k)) \
                 FROM (SELECT pg_catalog.unnest($1::pg_catalog.int8[]) AS k OFFSET 0) AS keys"
            ),
            (Number::Many, true) => format!(
                "SELECT pg_catalog.array_agg({function}(a, b)) \
                 FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.int4[]), pg_catalog.unnest($2::pg_catalog.int4[])) \
                 AS k(a, b)"
            ),
        }
    }

    /// Whether the statement's row lists the keys that were answered with false, and not all answers.
    pub(crate) const fn lists_refused(self, keys: Number) -> bool {
        matches!(keys, Number::Many) && !self.pair
    }

    /// Tries each key once.
    pub(crate) fn try_lock(self, keys: Number) -> String {
        self.for_each_key(&format!("pg_catalog.pg_try_advisory_lock{}", self.suffix()), keys)
    }

    /// Releases each key once.
    pub(crate) fn unlock(self, keys: Number) -> String {
        self.for_each_key(&format!("pg_catalog.pg_advisory_unlock{}", self.suffix()), keys)
    }
}

/// Whether a statement takes one key, or an array of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    One,
    Many,
}

impl Number {
    pub(crate) const fn of(keys: usize) -> Self {
        if keys == 1 { Self::One } else { Self::Many }
    }
}

/// Takes up to `$n` of the candidates, in order, and tries none behind the last that is needed. Returns the places of
/// those taken, counted from 1.
pub(crate) fn take_some(pairs: bool) -> String {
    let (keys, want, call) = if pairs {
        (
            "pg_catalog.cardinality($1::pg_catalog.int4[])",
            "$3::pg_catalog.int4",
            "(($1::pg_catalog.int4[])[t.i + 1], ($2::pg_catalog.int4[])[t.i + 1])",
        )
    } else {
        (
            "pg_catalog.cardinality($1::pg_catalog.int8[])",
            "$2::pg_catalog.int4",
            "(($1::pg_catalog.int8[])[t.i + 1])",
        )
    };
    format!(
        "WITH RECURSIVE t(i, got, ok) AS (SELECT 0, 0, false UNION ALL \
         SELECT t.i + 1, t.got + l.ok::pg_catalog.int4, l.ok FROM t CROSS JOIN LATERAL \
         (SELECT pg_catalog.pg_try_advisory_lock{call} AS ok OFFSET 0) l \
         WHERE t.i < {keys} AND t.got < {want}) SELECT i FROM t WHERE ok"
    )
}

/// Waits for a key in the server's queue for at most `limit`, and returns whether it was granted. One simple query, so
/// one implicit transaction, and quiet: no error, no aborted transaction, no line in the server's log.
///
/// The transaction lock is what waits, because a session lock whose wait ends by `lock_timeout` may have been granted
/// all the same and stay; the try promotes it, or fails.
pub(crate) fn wait_slice(key: Key, mode: Mode, limit: Duration) -> String {
    let limit = limit.as_millis().max(1);
    let suffix = Kind::of(key, mode).suffix();
    let key = key.sql_arguments();
    format!(
        "SET LOCAL lock_timeout = '{limit}'; \
         DO $latchwork$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock{suffix}({key}); \
         EXCEPTION WHEN lock_not_available THEN NULL; END $latchwork$; \
         SELECT pg_catalog.pg_try_advisory_lock{suffix}({key})"
    )
}

/// Waits for at most `limit` for each of these keys until nobody has it, takes none of them, and says whether nobody did.
/// Quiet, as [`wait_slice`] is.
pub(crate) fn drain_slice(keys: &[Key], limit: Duration) -> String {
    let limit = limit.as_millis().max(1);
    let waits = keys
        .iter()
        .map(|key| format!("PERFORM pg_catalog.pg_advisory_xact_lock({}); ", key.sql_arguments()));
    let says = |answer| format!("PERFORM pg_catalog.set_config('latchwork.drained', '{answer}', true); ");
    format!(
        "SET LOCAL lock_timeout = '{limit}'; \
         DO $latchwork$ BEGIN {}{}EXCEPTION WHEN lock_not_available OR deadlock_detected THEN {}END $latchwork$; \
         SELECT pg_catalog.current_setting('latchwork.drained', true)",
        waits.collect::<String>(),
        says("t"),
        says("f"),
    )
}

/// A number that grows with each transaction of the cluster, in two halves, and that no crash takes back: it is flushed.
/// In a transaction of its own.
pub(crate) const TERM: &str = "BEGIN; SET LOCAL synchronous_commit = on; \
     SELECT pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8), \
     pg_catalog.pg_current_xact_id()::pg_catalog.text, \
     pg_catalog.pg_logical_emit_message(true, 'latchwork', ''); COMMIT";

/// Shows the session to others under another name.
pub(crate) const SHOW_AS: &str = "SELECT pg_catalog.set_config('application_name', $1, false)";

/// The last run of a job.
pub(crate) const LAST_RUN: &str = "SELECT r.name, r.tick, r.claimed_by, r.claimed_at, r.ended_at, r.outcome \
     FROM latchwork.ticks AS r WHERE r.key OPERATOR(pg_catalog.=) $1";

/// Has the server end each statement that takes longer.
pub(crate) fn end_what_is_held_up(limit: Duration) -> String {
    format!("SET statement_timeout = '{}ms'", limit.as_millis().max(1))
}

/// Who holds a key exclusively.
pub(crate) const INCUMBENT: &str = "SELECT a.application_name, pg_catalog.host(a.client_addr) \
     FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid \
     WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock' AND l.database = \
     (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
     AND l.classid = $1 AND l.objid = $2 AND l.objsubid = $3 LIMIT 1";

/// Tries a key once.
pub(crate) fn try_once(key: Key, mode: Mode) -> String {
    format!(
        "SELECT pg_catalog.pg_try_advisory_lock{}({})",
        Kind::of(key, mode).suffix(),
        key.sql_arguments()
    )
}

/// Releases one key once.
pub(crate) fn unlock(key: Key, mode: Mode) -> String {
    format!(
        "SELECT pg_catalog.pg_advisory_unlock{}({})",
        Kind::of(key, mode).suffix(),
        key.sql_arguments()
    )
}

/// All advisory locks of this database, and whose they are. The lock table is read once, so that the rows fit each
/// other.
pub(crate) fn inspect(major: u32) -> String {
    let waitstart = if major >= 14 {
        "waitstart"
    } else {
        "NULL::pg_catalog.timestamptz AS waitstart"
    };
    format!(
        "WITH l AS MATERIALIZED (SELECT classid, objid, objsubid, mode, granted, pid, {waitstart} \
         FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND database = \
         (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())) \
         SELECT l.classid, l.objid, l.objsubid, l.mode = 'ShareLock', l.granted, l.pid, a.application_name, \
         a.usename::pg_catalog.text, pg_catalog.host(a.client_addr), a.backend_start, a.xact_start, l.waitstart, \
         CASE WHEN NOT l.granted THEN pg_catalog.pg_blocking_pids(l.pid) END \
         FROM l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid \
         ORDER BY l.objsubid, l.classid, l.objid, l.waitstart NULLS FIRST, l.pid"
    )
}

/// Ends the session of a holder, if it holds the key still. The inner query is not pulled up, so nobody else's is ended.
pub(crate) const END_HOLDER: &str = "SELECT pg_catalog.pg_terminate_backend(pid) FROM (SELECT DISTINCT pid \
     FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND granted AND database = \
     (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) \
     AND classid = $1 AND objid = $2 AND objsubid = $3 AND pid = $4 OFFSET 0) AS holder";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_listed_at_their_index() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
        }
    }

    #[test]
    fn a_slice_is_never_without_a_limit() {
        // For PostgreSQL a lock_timeout of 0 is none.
        for limit in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)] {
            assert!(wait_slice(Key::bigint(1), Mode::Shared, limit).contains("lock_timeout = '1'"));
        }
    }
}
