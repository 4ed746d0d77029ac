//! Connections that end at each step.

use std::thread;

use diesel::connection::{SimpleConnection as _, TransactionManager as _};
use diesel::result::Error;
use diesel::{Connection as _, PgConnection};
use latchwork_diesel::{LockedError, LockedTransactionExt as _, XactLockError, XactLockExt as _};
use latchwork_harness::{Proxy, wait_until};

use crate::support::{
    CLUSTER, LONG, becomes, connect, fresh_key, insert, kill, patient, pid, pool, seen, stored, table, until_waited_for,
};

type Manager = <PgConnection as diesel::Connection>::TransactionManager;

/// A pool closes it then.
#[track_caller]
fn is_given_up(conn: &mut PgConnection) {
    assert!(Manager::is_broken_transaction_manager(conn));
    conn.transaction(|_| Ok::<_, Error>(())).unwrap_err();
}

#[test]
fn in_the_wait_of_a_locked_transaction() {
    let mut conn = connect();
    let key = fresh_key();
    let victim = pid(&mut conn);
    let holding = until_waited_for(&CLUSTER, key, move || kill(&CLUSTER, victim));
    let error = conn.locked_transaction(key, patient(), |_| -> Result<(), ()> { unreachable!() });
    let error = error.unwrap_err();
    assert!(
        matches!(error, LockedError::Lock(XactLockError::ConnectionLost { .. })),
        "{error:?}"
    );
    holding.ended();
    is_given_up(&mut conn);
    becomes(&CLUSTER, key, (0, 0));
}

#[test]
fn in_the_wait_of_an_open_transaction() {
    let mut conn = connect();
    let key = fresh_key();
    let victim = pid(&mut conn);
    Manager::begin_transaction(&mut conn).unwrap();
    let holding = until_waited_for(&CLUSTER, key, move || kill(&CLUSTER, victim));
    let error = conn.xact_lock(key).within(LONG).unwrap_err();
    assert!(matches!(error, XactLockError::ConnectionLost { .. }), "{error:?}");
    holding.ended();
    let error = conn.xact_lock(key).within(LONG).unwrap_err();
    assert!(matches!(error, XactLockError::ConnectionLost { .. }), "{error:?}");
    is_given_up(&mut conn);
    becomes(&CLUSTER, key, (0, 0));
}

#[test]
fn before_the_transaction() {
    for waits in [true, false] {
        let mut conn = connect();
        let victim = pid(&mut conn);
        kill(&CLUSTER, victim);
        let body = |_: &mut _| -> Result<(), ()> { unreachable!() };
        if waits {
            let error = conn.locked_transaction(fresh_key(), patient(), body).unwrap_err();
            let lost = matches!(error, LockedError::Lock(XactLockError::ConnectionLost { .. }));
            assert!(lost, "{error:?}");
        } else {
            let error = conn.try_locked_transaction(fresh_key(), body).unwrap_err();
            assert!(matches!(error, LockedError::Begin(_)), "{error:?}");
        }
        is_given_up(&mut conn);
    }
}

#[test]
fn in_the_body() {
    let table = table();
    for swallowed in [true, false] {
        let mut conn = connect();
        let key = fresh_key();
        let said = conn.locked_transaction(key, patient(), |conn| {
            insert(conn, &table, 1)?;
            let victim = pid(conn);
            kill(&CLUSTER, victim);
            let failed = insert(conn, &table, 2);
            if swallowed { Ok(0) } else { failed }
        });
        let as_expected = match &said {
            Err(LockedError::Aborted(_)) => swallowed,
            Err(LockedError::Body(_)) => !swallowed,
            _ => false,
        };
        assert!(as_expected, "{said:?}");
        is_given_up(&mut conn);
        becomes(&CLUSTER, key, (0, 0));
    }
    assert_eq!(stored(&table), [0]);
}

#[test]
fn during_the_commit_whether_it_was_carried_out_or_not() {
    for carried_out in [true, false] {
        let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
        let (table, key) = (table(), fresh_key());
        let mut conn = PgConnection::establish(&proxy.url()).unwrap();
        thread::scope(|scope| {
            let said = conn.locked_transaction(key, patient(), |conn| {
                insert(conn, &table, 1)?;
                let sent = proxy.bytes_to_server();
                if carried_out {
                    proxy.freeze_answers();
                } else {
                    proxy.freeze();
                }
                let (proxy, table) = (&proxy, &table);
                scope.spawn(move || {
                    if carried_out {
                        assert!(wait_until(LONG, || proxy.bytes_to_server() > sent));
                        assert!(wait_until(LONG, || stored(table) == [0, 1]));
                    }
                    proxy.cut();
                });
                Ok::<_, Error>(())
            });
            assert!(matches!(said, Err(LockedError::OutcomeUnknown(_))), "{said:?}");
        });
        is_given_up(&mut conn);
        becomes(&CLUSTER, key, (0, 0));
        assert_eq!(stored(&table), if carried_out { vec![0, 1] } else { vec![0] });
    }
}

#[test]
fn a_pool_of_one_replaces_what_has_ended() {
    let (pool, table, key) = (pool(&CLUSTER.url(), 1), table(), fresh_key());
    for _ in 0..3 {
        let mut conn = pool.get().unwrap();
        let said = conn.locked_transaction(key, patient(), |conn| {
            insert(conn, &table, 1)?;
            let victim = pid(conn);
            kill(&CLUSTER, victim);
            conn.batch_execute("SELECT 1")
        });
        assert!(matches!(said, Err(LockedError::Body(_))), "{said:?}");
    }
    let mut conn = pool.get().unwrap();
    conn.locked_transaction(key, patient(), |conn| {
        assert_eq!(seen(&CLUSTER, key), (1, 0));
        insert(conn, &table, 2)
    })
    .unwrap();
    assert_eq!(stored(&table), [0, 2]);
}
