//! Connections that end at each step.

use std::thread;

use diesel::connection::TransactionManager as _;
use diesel::result::Error;
use diesel::{Connection as _, PgConnection};
use latchwork_diesel::{LockedError, LockedTransactionExt as _, XactLockError};
use latchwork_harness::{Proxy, wait_until};

use crate::support::{CLUSTER, LONG, becomes, connect, fresh_key, insert, kill, patient, pid, stored, table};

type Manager = <PgConnection as diesel::Connection>::TransactionManager;

/// A pool closes it then.
#[track_caller]
fn is_given_up(conn: &mut PgConnection) {
    assert!(Manager::is_broken_transaction_manager(conn));
    conn.transaction(|_| Ok::<_, Error>(())).unwrap_err();
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
