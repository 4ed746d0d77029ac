//! Where no lock is to be had.

use std::error::Error as _;

use diesel::connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager as _};
use diesel::{Connection as _, PgConnection};
use latchwork_diesel::{Key, KeySet, LockedError, LockedTransactionExt as _, XactLockError, XactLockExt as _};
use latchwork_harness::Cluster;

use crate::support::{CLUSTER, LONG, connect, fresh_key, is_clean, patient, seen, while_held};

#[test]
fn without_a_transaction_nothing_is_locked_and_the_connection_stays_usable() {
    let mut conn = connect();
    let key = fresh_key();
    for error in [
        conn.xact_lock(key).within(LONG).unwrap_err(),
        conn.xact_lock_shared(key).without_limit().unwrap_err(),
        conn.try_xact_lock(key).unwrap_err(),
        conn.try_xact_lock_shared(key).unwrap_err(),
    ] {
        assert!(matches!(error, XactLockError::NoTransaction { .. }), "{error:?}");
    }
    assert_eq!(seen(&CLUSTER, key), (0, 0));
    is_clean(&mut conn);
}

#[test]
fn a_snapshot_older_than_the_lock_is_refused_unless_allowed() {
    let mut conn = connect();
    let key = fresh_key();
    for (level, stale) in [
        ("REPEATABLE READ", true),
        ("SERIALIZABLE", true),
        ("READ COMMITTED", false),
        ("READ UNCOMMITTED", false),
    ] {
        AnsiTransactionManager::begin_transaction_sql(&mut conn, &format!("BEGIN ISOLATION LEVEL {level}")).unwrap();
        if stale {
            for error in [
                conn.xact_lock(key).within(LONG).unwrap_err(),
                conn.try_xact_lock(key).unwrap_err(),
                conn.try_xact_lock([key, Key::bigint(1)]).unwrap_err(),
            ] {
                let refused = matches!(&error, XactLockError::StaleSnapshot { isolation, .. } if *isolation == level.to_lowercase());
                assert!(refused, "{error:?}");
            }
            assert_eq!(seen(&CLUSTER, key), (0, 0));
        }
        let lock = conn.xact_lock(key);
        let lock = if stale { lock.allow_stale_snapshot() } else { lock };
        lock.within(LONG).unwrap();
        assert_eq!(seen(&CLUSTER, key), (1, 0));
        AnsiTransactionManager::rollback_transaction(&mut conn).unwrap();
    }
}

#[test]
fn a_locked_transaction_is_read_committed_whatever_the_default_is() {
    let mut conn = connect();
    conn.batch_execute("SET default_transaction_isolation = 'repeatable read'")
        .unwrap();
    for limited in [true, false] {
        let shown =
            |conn: &mut PgConnection| Ok::<_, LockedError<()>>(crate::support::shown(conn, "transaction_isolation"));
        let isolation = if limited {
            conn.locked_transaction(fresh_key(), patient(), shown).unwrap()
        } else {
            conn.try_locked_transaction(fresh_key(), shown).unwrap().unwrap()
        };
        assert_eq!(isolation, "read committed");
    }
}

#[test]
fn a_transaction_that_an_error_has_aborted_is_told_from_other_failures() {
    let mut conn = connect();
    for keys in [KeySet::from(fresh_key()), KeySet::from([fresh_key(), fresh_key()])] {
        AnsiTransactionManager::begin_transaction(&mut conn).unwrap();
        conn.batch_execute("SELECT 1 / 0").unwrap_err();
        let error = conn.xact_lock(keys.clone()).within(LONG).unwrap_err();
        assert!(matches!(error, XactLockError::Aborted { .. }), "{error:?}");
        assert!(error.source().is_some());
        AnsiTransactionManager::rollback_transaction(&mut conn).unwrap();

        is_clean(&mut conn);
    }
}

#[test]
fn another_failure_is_not_taken_for_an_aborted_transaction() {
    let name = format!("strict_{}", fastrand::u64(..));
    CLUSTER.psql(&format!("CREATE ROLE {name} LOGIN")).unwrap();
    CLUSTER.psql(&format!("CREATE DATABASE {name}")).unwrap();
    let revoke = "REVOKE EXECUTE ON FUNCTION pg_try_advisory_xact_lock(bigint) FROM PUBLIC";
    CLUSTER.psql_as("postgres", &name, revoke).unwrap();
    let mut conn = PgConnection::establish(&CLUSTER.url_for(&name, &name)).unwrap();
    AnsiTransactionManager::begin_transaction(&mut conn).unwrap();
    let error = conn.try_xact_lock(fresh_key()).unwrap_err();
    assert!(matches!(error, XactLockError::Backend { .. }), "{error:?}");
    AnsiTransactionManager::rollback_transaction(&mut conn).unwrap();

    let error = conn
        .locked_transaction(fresh_key(), patient(), |_| Ok::<_, ()>(()))
        .unwrap_err();
    assert!(
        matches!(error, LockedError::Lock(XactLockError::Backend { .. })),
        "{error:?}"
    );
}

#[test]
fn a_statement_timeout_is_told_as_a_wait_that_was_cancelled() {
    let mut conn = connect();
    conn.batch_execute("SET statement_timeout = '50ms'").unwrap();
    let key = fresh_key();
    while_held(key, || {
        let error = conn
            .locked_transaction(key, patient(), |_| -> Result<(), ()> { unreachable!() })
            .unwrap_err();
        let cancelled = matches!(error, LockedError::Lock(XactLockError::Cancelled { .. }));
        assert!(cancelled, "{error:?}");
        is_clean(&mut conn);
    });
}

#[test]
fn a_full_lock_table_is_told_from_other_failures() {
    let cluster = Cluster::builder()
        .setting("max_connections", 10)
        .setting("max_locks_per_transaction", 10)
        .start()
        .unwrap();
    let mut conn = PgConnection::establish(&cluster.url()).unwrap();
    AnsiTransactionManager::begin_transaction(&mut conn).unwrap();
    let failed = (0..10_000)
        .map(|_| conn.try_xact_lock(fresh_key()))
        .find_map(Result::err);
    let error = failed.unwrap();
    assert!(matches!(error, XactLockError::LockTableFull { .. }), "{error:?}");
}

#[test]
fn a_standby_is_refused() {
    let primary = Cluster::start().unwrap();
    let standby = primary.standby().unwrap();
    let mut conn = PgConnection::establish(&standby.url()).unwrap();
    let error = conn
        .locked_transaction(fresh_key(), patient(), |_| Ok::<_, ()>(()))
        .unwrap_err();
    assert!(
        matches!(error, LockedError::Lock(XactLockError::Standby { .. })),
        "{error:?}"
    );
    let error = conn
        .transaction(|conn| conn.xact_lock(fresh_key()).within(LONG).map_err(Refused::Lock))
        .unwrap_err();
    assert!(
        matches!(error, Refused::Lock(XactLockError::Standby { .. })),
        "{error:?}"
    );
}

#[derive(Debug)]
enum Refused {
    Lock(XactLockError),
    #[expect(dead_code, reason = "for a failing assertion to show")]
    Diesel(diesel::result::Error),
}

impl From<diesel::result::Error> for Refused {
    fn from(error: diesel::result::Error) -> Self {
        Self::Diesel(error)
    }
}
