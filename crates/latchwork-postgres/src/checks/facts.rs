//! The one question at connect, and the verdict on its answer.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use futures_util::TryStreamExt as _;
use tokio_postgres::SimpleQueryMessage;

use super::{CheckError, ServerFacts};
use crate::connect::{ConnectError, Opened, SessionSettings};

/// What the server answered, not yet judged.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// What it calls itself, if it got that far.
    product: String,
    /// `None` when it does not know one of the functions or settings.
    row: Option<Vec<String>>,
}

const COLUMNS: &str = "\
    pg_catalog.current_setting('server_version_num'), \
    pg_catalog.pg_is_in_recovery()::pg_catalog.text, \
    pg_catalog.pg_backend_pid()::pg_catalog.text, \
    (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())::pg_catalog.text, \
    pg_catalog.current_database()::pg_catalog.text, \
    pg_catalog.current_setting('max_locks_per_transaction'), \
    pg_catalog.current_setting('max_connections'), \
    pg_catalog.current_setting('max_prepared_transactions'), \
    pg_catalog.trunc(EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time()) * 1000)::pg_catalog.int8::pg_catalog.text";

/// Products that answer to the protocol and whose advisory locks are missing or do nothing.
const LOOK_ALIKES: &[&str] = &[
    "cockroachdb",
    "redshift",
    "materialize",
    "risingwave",
    "questdb",
    "cratedb",
    "duckdb",
    "h2 ",
];

/// Asks for everything in one trip, without the operators of anybody's `search_path`, and sets the session up in the same trip if its process id is `announced`, that
/// is, if no pooler stands between.
pub(super) async fn ask(
    opened: &mut Opened,
    settings: &SessionSettings,
    announced: i32,
) -> Result<Asked, ConnectError> {
    let question = format!(
        "SELECT pg_catalog.version(); SET LOCAL search_path = pg_catalog; SELECT {COLUMNS}; {}",
        settings_sql(settings, &format!("pg_catalog.pg_backend_pid() = {announced}"))
    );
    let mut rows: Vec<Vec<String>> = Vec::new();
    let Opened { client, wire, .. } = opened;
    let answered = wire.drive(async {
        let mut messages = std::pin::pin!(client.simple_query_raw(&question).await?);
        while let Some(message) = messages.try_next().await? {
            if let SimpleQueryMessage::Row(row) = message {
                let values: Vec<_> = (0..row.len())
                    .map(|i| row.get(i).unwrap_or_default().to_owned())
                    .collect();
                rows.push(values);
            }
        }
        Ok(())
    });
    match answered.await {
        // Once the answers are there, what failed is setting the session up, on a server that knows our functions.
        Err(error) if rows.len() > 1 || !is_unknown_to_the_server(&error) => {
            return Err(ConnectError::from_driver(error, &opened.server));
        }
        _ => {}
    }
    let mut rows = rows.into_iter();
    let product = rows.next().and_then(|row| row.into_iter().next()).unwrap_or_default();
    Ok(Asked {
        product,
        row: rows.next(),
    })
}

/// Sets the session up, for a session that a pooler gives to us alone.
pub(super) async fn apply_settings(opened: &mut Opened, settings: &SessionSettings) -> Result<(), ConnectError> {
    let sql = settings_sql(settings, "true");
    let done = opened.wire.drive(opened.client.batch_execute(&sql)).await;
    done.map_err(|error| ConnectError::from_driver(error, &opened.server))
}

/// The statement that sets a session up where `condition` holds. The search path is for the operators, which have no
/// schema in our statements. Settings that a version lacks are left out by the server, and so is one that a platform may
/// lack, where it is not one that is known to have it: see [`apply_check_interval`].
fn settings_sql(settings: &SessionSettings, condition: &str) -> String {
    let silence = settings.silence.as_millis().clamp(1, i32::MAX as u128);
    let quarter = silence.div_ceil(4000);
    let check = check_interval(settings);
    format!(
        "SELECT pg_catalog.count(pg_catalog.set_config(name, value, false)) FROM (VALUES \
         ('search_path', 'pg_catalog'), ('statement_timeout', '0'), ('lock_timeout', '0'), ('idle_in_transaction_session_timeout', '0'), \
         ('transaction_timeout', '0'), ('idle_session_timeout', '{silence}'), ('tcp_keepalives_idle', '{quarter}'), \
         ('tcp_keepalives_interval', '{quarter}'), ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '{silence}'), \
         ('plan_cache_mode', 'force_generic_plan'), (CASE WHEN pg_catalog.strpos(pg_catalog.version(), '{LINUX}') > 0 \
         THEN 'client_connection_check_interval' END, '{check}')) AS wanted(name, value) \
         WHERE {condition} AND pg_catalog.current_setting(name, true) IS NOT NULL"
    )
}

fn check_interval(settings: &SessionSettings) -> u128 {
    settings.check_interval.as_millis().min(i32::MAX as u128)
}

/// Has the server look for us while it waits, on a platform that may not be able to; an error would be written to its log.
/// Not where it is known to: a fresh session takes milliseconds to load the language of this statement.
pub(super) async fn apply_check_interval(
    opened: &mut Opened,
    settings: &SessionSettings,
    product: &str,
) -> Result<(), ConnectError> {
    if product.contains(LINUX) {
        return Ok(());
    }
    let check = check_interval(settings);
    let sql = format!(
        "DO $latchwork$ BEGIN \
         IF pg_catalog.current_setting('client_connection_check_interval', true) IS NOT NULL THEN \
         PERFORM pg_catalog.set_config('client_connection_check_interval', '{check}', false); END IF; \
         EXCEPTION WHEN OTHERS THEN NULL; END $latchwork$"
    );
    let done = opened.wire.drive(opened.client.batch_execute(&sql)).await;
    done.map_err(|error| ConnectError::from_driver(error, &opened.server))
}

/// In the version of a server on a platform that tells when the other end of a socket is gone.
const LINUX: &str = "linux";

/// Errors that PostgreSQL gives for none of our statements: unknown functions, settings, tables or syntax.
pub(super) fn is_unknown_to_the_server(error: &tokio_postgres::Error) -> bool {
    error
        .code()
        .is_some_and(|code| code.code().starts_with("42") || code.code() == "0A000")
}

/// Decides. `announced` is the process id that came with the login.
pub(super) fn judge(asked: &Asked, announced: i32) -> Result<ServerFacts, CheckError> {
    let look_alike = || CheckError::LookAlike {
        product: asked.product.clone(),
    };
    let lower = asked.product.to_ascii_lowercase();
    if LOOK_ALIKES.iter().any(|name| lower.contains(name)) {
        return Err(look_alike());
    }
    let row = asked.row.as_ref().ok_or_else(look_alike)?;
    let version: u32 = value(row, 0).ok_or_else(look_alike)?;
    if version / 10_000 < CheckError::OLDEST {
        return Err(CheckError::TooOld {
            major: version / 10_000,
        });
    }
    if row.get(1).is_some_and(|standby| standby == "true") {
        return Err(CheckError::Standby);
    }
    let facts = || {
        let backend_pid: i32 = value(row, 2)?;
        let slots = value::<u64>(row, 6)?.saturating_add(value(row, 7)?);
        Some(ServerFacts {
            version,
            product: asked.product.clone(),
            backend_pid,
            database_oid: value(row, 3)?,
            database: row.get(4)?.clone(),
            lock_capacity: value::<u64>(row, 5)?.saturating_mul(slots),
            pooled: backend_pid != announced,
            started: SystemTime::UNIX_EPOCH + Duration::from_millis(value(row, 8)?),
        })
    };
    facts().ok_or_else(look_alike)
}

fn value<T: FromStr>(row: &[String], index: usize) -> Option<T> {
    row.get(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: i32 = 4711;

    fn asked(product: &str, changes: &[(usize, &str)]) -> Asked {
        let mut row: Vec<String> = [
            "150004",
            "false",
            "4711",
            "5",
            "shop",
            "64",
            "100",
            "0",
            "1700000000000",
        ]
        .iter()
        .map(ToString::to_string)
        .collect();
        for (index, value) in changes {
            row[*index] = (*value).to_owned();
        }
        Asked {
            product: product.to_owned(),
            row: Some(row),
        }
    }

    const PRODUCT: &str = "PostgreSQL 15.4 on x86_64-pc-linux-gnu";

    #[test]
    fn a_primary_reached_directly_is_accepted() {
        let facts = judge(&asked(PRODUCT, &[]), PID).unwrap();
        assert_eq!((facts.major(), facts.lock_capacity, facts.pooled), (15, 6400, false));
        assert_eq!(
            (facts.database.as_str(), facts.database_oid, facts.backend_pid),
            ("shop", 5, PID)
        );
    }

    #[test]
    fn another_process_id_than_announced_means_a_pooler() {
        assert!(judge(&asked(PRODUCT, &[]), PID + 1).unwrap().pooled);
    }

    #[test]
    fn prepared_transactions_count_for_the_capacity() {
        assert_eq!(
            judge(&asked(PRODUCT, &[(7, "50")]), PID).unwrap().lock_capacity,
            64 * 150
        );
    }

    #[test]
    fn a_standby_is_refused() {
        assert_eq!(judge(&asked(PRODUCT, &[(1, "true")]), PID), Err(CheckError::Standby));
    }

    #[test]
    fn an_old_version_is_refused() {
        assert_eq!(
            judge(&asked("PostgreSQL 12.9", &[(0, "120009")]), PID),
            Err(CheckError::TooOld { major: 12 })
        );
    }

    #[test]
    fn look_alikes_are_refused_by_name() {
        for product in [
            "CockroachDB CCL v23.1.11 (x86_64-pc-linux-gnu, built 2023/09/27, go1.19.10)",
            "PostgreSQL 13.14.0-RisingWave-2.0.1",
            "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC gcc (GCC) 3.4.2, Redshift 1.0.12103",
            "PostgreSQL 9.5.0 on x86_64-unknown-linux-gnu (materialize 0.27.0)",
        ] {
            let refused = judge(&asked(product, &[]), PID);
            assert_eq!(
                refused,
                Err(CheckError::LookAlike {
                    product: product.to_owned()
                })
            );
        }
    }

    #[test]
    fn a_server_that_does_not_know_our_questions_is_a_look_alike() {
        let unknown = Asked {
            product: "Something 1.0".to_owned(),
            row: None,
        };
        assert_eq!(
            judge(&unknown, PID),
            Err(CheckError::LookAlike {
                product: "Something 1.0".to_owned()
            })
        );
        let nonsense = asked("Something 1.0", &[(5, "many")]);
        assert_eq!(
            judge(&nonsense, PID),
            Err(CheckError::LookAlike {
                product: "Something 1.0".to_owned()
            })
        );
    }

    #[test]
    fn a_derivative_with_real_locks_is_left_to_the_probe() {
        assert!(judge(&asked("PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64", &[]), PID).is_ok());
        assert!(
            judge(
                &asked("PostgreSQL 15.2 (EnterpriseDB Advanced Server 15.2.0)", &[]),
                PID
            )
            .is_ok()
        );
    }
}
