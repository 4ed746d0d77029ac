//! Where no lock is to be had.

use diesel::connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager as _};
use diesel::{Connection as _, PgConnection};
use latchwork_diesel::{LockedError, LockedTransactionExt as _, XactLockError, XactLockExt as _};

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
