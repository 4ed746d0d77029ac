//! What there is to know about a server before it is trusted with locks, beside what each connect checks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use tokio_postgres::{Client, Row};

use crate::{
    checks::ServerFacts,
    connect::{Connected, Wire},
    error::StatementError,
    inspect::InspectError,
    schema::{self, SchemaState},
    sql,
};

/// A server, and the way to it, at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Survey {
    /// What the checks at the connect have found.
    pub server: ServerFacts,
    /// Whether the way there is encrypted, and by which version of TLS.
    pub tls: Option<String>,
    /// Whether the server sees us come over TCP, and not through a unix socket.
    pub tcp: bool,
    /// The role.
    pub role: String,
    /// Time limits of the server, and what our sessions make of them.
    pub timeouts: Vec<Timeout>,
    /// How many locks of all kinds there are in the server's table, give or take those of the survey.
    pub locks_in_use: u64,
    /// How many sessions there are, and may be.
    pub sessions: Vec<Room>,
    /// Whether the role sees whose other roles' sessions are.
    pub sees_others: bool,
    /// Whether the role may end other roles' sessions, but for those of superusers.
    pub ends_others: bool,
    /// Whether the role may make the tables of [`schema`].
    pub may_install: bool,
    /// The tables of [`schema`]; `None` if the role may not look.
    pub schema: Option<SchemaState>,
    /// Whether the role may read and write all tables of [`schema`] that are there; not if there are none.
    pub may_use_schema: bool,
    /// How far the server's clock is from ours, and whether it is ahead. It is known to within half a round trip.
    pub clock: (Duration, Ahead),
    /// The median time of a statement that does nothing.
    pub round_trip: Duration,
    /// The longest of them.
    pub longest_round_trip: Duration,
}

/// Whose clock is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ahead {
    /// The server's.
    Server,
    /// Ours.
    Client,
}

/// A time limit of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeout {
    /// Its name.
    pub name: String,
    /// What a session of this role has that sets nothing itself; `None` if there is no limit.
    pub by_default: Option<Duration>,
    /// What a session of ours has.
    pub for_us: Option<Duration>,
}

/// How many sessions there are of how many that there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Room {
    /// Of whom: `server`, `role` or `database`.
    pub of: String,
    /// How many there are.
    pub taken: u64,
    /// How many there may be.
    pub limit: u64,
}

impl Survey {
    /// Asks on a connection that is closed again afterwards.
    pub(crate) async fn take(connected: Connected) -> Result<Self, InspectError> {
        let Connected {
            client,
            mut wire,
            facts,
            ..
        } = connected;
        let asked = wire
            .drive(async {
                let timeouts = client.query(TIMEOUTS, &[]).await?;
                Ok((timeouts, client.query_one(STATE, &[]).await?))
            })
            .await;
        let (timeouts, state) = asked.map_err(StatementError::from_driver)?;
        // Forbidden to look is an answer too.
        let schema = wire.drive(async { Ok(schema::check(&client).await) }).await;
        let schema = schema.map_err(StatementError::from_driver)?.ok();
        // Of tables that it may look at: else the names alone would be refused.
        let may_use_schema = match schema {
            Some(state) if state != SchemaState::Missing => {
                let asked = wire.drive(client.query_one(MAY_USE, &[])).await;
                asked.map_err(StatementError::from_driver)?.get(0)
            }
            _ => false,
        };
        let times = Times::take(&client, &mut wire)
            .await
            .map_err(StatementError::from_driver)?;
        drop(client);
        wire.finish().await;
        let limits = [("server", 6, 7), ("role", 8, 9), ("database", 10, 11)];
        Ok(Self {
            server: facts,
            tls: state.get(0),
            tcp: state.get(1),
            role: state.get(2),
            timeouts: timeouts.iter().map(timeout).collect(),
            locks_in_use: number(&state, 3).unwrap_or_default(),
            sees_others: state.get(4),
            ends_others: state.get(5),
            sessions: limits
                .into_iter()
                .filter_map(|(of, taken, limit)| {
                    Some(Room {
                        of: of.to_owned(),
                        taken: number(&state, taken)?,
                        limit: number(&state, limit)?,
                    })
                })
                .collect(),
            may_install: state.get(12),
            schema,
            may_use_schema,
            clock: times.clock,
            round_trip: times.round_trip,
            longest_round_trip: times.longest,
        })
    }
}

/// A number of the server that is negative where it stands for "no limit".
fn number(row: &Row, column: usize) -> Option<u64> {
    row.get::<_, Option<i64>>(column)
        .and_then(|number| u64::try_from(number).ok())
}

fn timeout(row: &Row) -> Timeout {
    let limit = |column| {
        number(row, column)
            .filter(|limit| *limit > 0)
            .map(Duration::from_millis)
    };
    Timeout {
        name: row.get(0),
        by_default: limit(1),
        for_us: limit(2),
    }
}

struct Times {
    clock: (Duration, Ahead),
    round_trip: Duration,
    longest: Duration,
}

impl Times {
    async fn take(client: &Client, wire: &mut Wire) -> Result<Self, tokio_postgres::Error> {
        let clock = wire.drive(client.prepare(CLOCK)).await?;
        let mut best: Option<(Duration, i64)> = None;
        let mut trips = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let began = Instant::now();
            wire.drive(client.simple_query(sql::PING)).await?;
            trips.push(began.elapsed());
            let (began, ours) = (Instant::now(), micros_since_1970());
            let theirs: i64 = wire.drive(client.query_one(&clock, &[])).await?.get(0);
            let trip = began.elapsed();
            // The quickest answer leaves the least doubt about when its clock was read.
            if best.is_none_or(|(quickest, _)| trip < quickest) {
                let middle = i64::try_from(trip.as_micros() / 2).unwrap_or_default();
                best = Some((trip, theirs - (ours + middle)));
            }
        }
        trips.sort_unstable();
        let offset = best.map_or(0, |(_, offset)| offset);
        let ahead = if offset < 0 { Ahead::Client } else { Ahead::Server };
        Ok(Self {
            clock: (Duration::from_micros(offset.unsigned_abs()), ahead),
            round_trip: trips[ROUNDS / 2],
            longest: trips[ROUNDS - 1],
        })
    }
}

fn micros_since_1970() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or_default()
}

const ROUNDS: usize = 21;

const CLOCK: &str =
    "SELECT pg_catalog.trunc(EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::pg_catalog.int8";

/// Whether each of our tables may be read and written.
const MAY_USE: &str = "SELECT coalesce(pg_catalog.bool_and(pg_catalog.has_table_privilege(c.oid, 'SELECT') \
     AND pg_catalog.has_table_privilege(c.oid, 'INSERT') AND pg_catalog.has_table_privilege(c.oid, 'UPDATE') \
     AND pg_catalog.has_table_privilege(c.oid, 'DELETE')), false) \
     FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     WHERE n.nspname = 'latchwork' AND c.relname IN ('rate_limits', 'idempotency', 'ticks')";

/// The limits that end a session or a statement, in milliseconds.
const TIMEOUTS: &str = "SELECT name, \
     reset_val::pg_catalog.int8 * CASE unit WHEN 's' THEN 1000 ELSE 1 END, \
     setting::pg_catalog.int8 * CASE unit WHEN 's' THEN 1000 ELSE 1 END \
     FROM pg_catalog.pg_settings WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', \
     'idle_in_transaction_session_timeout', 'idle_session_timeout', 'tcp_keepalives_idle', 'tcp_user_timeout', \
     'client_connection_check_interval') ORDER BY name";

/// The sessions of other roles are counted by what everybody may see of them.
const STATE: &str = "WITH mine AS (SELECT * FROM pg_catalog.pg_roles WHERE rolname = current_user), \
     here AS (SELECT * FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()), \
     sessions AS (SELECT usename, datname FROM pg_catalog.pg_stat_activity \
     WHERE usesysid IS NOT NULL AND datid IS NOT NULL) \
     SELECT (SELECT version FROM pg_catalog.pg_stat_ssl WHERE pid = pg_catalog.pg_backend_pid() AND ssl), \
     pg_catalog.inet_server_addr() IS NOT NULL, \
     current_user::pg_catalog.text, \
     (SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks), \
     pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), \
     pg_catalog.pg_has_role(current_user, 'pg_signal_backend', 'USAGE'), \
     (SELECT pg_catalog.count(*) FROM sessions), \
     pg_catalog.current_setting('max_connections')::pg_catalog.int8 \
     - pg_catalog.current_setting('superuser_reserved_connections')::pg_catalog.int8 \
     - coalesce(pg_catalog.current_setting('reserved_connections', true), '0')::pg_catalog.int8, \
     (SELECT pg_catalog.count(*) FROM sessions WHERE usename = current_user), \
     (SELECT CASE WHEN rolsuper THEN -1 ELSE rolconnlimit END::pg_catalog.int8 FROM mine), \
     (SELECT pg_catalog.count(*) FROM sessions WHERE datname = pg_catalog.current_database()), \
     (SELECT datconnlimit::pg_catalog.int8 FROM here), \
     pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')";
