//! What becomes of what a body says and does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use diesel::connection::{
    AnsiTransactionManager, InstrumentationEvent, SimpleConnection as _, TransactionManager as _,
};
use diesel::result::Error;
use diesel::{Connection as _, PgConnection};
use latchwork_core::xact::XactOptions;
use latchwork_diesel::{LockedError, LockedTransactionExt as _, XactLockExt as _};

use crate::support::{
    CLUSTER, LONG, connect, fresh_key, insert, is_clean, patient, seen, shown, stored, table, until_waited_for,
};

#[derive(Debug, PartialEq)]
struct Whim(&'static str);

#[test]
fn a_panic_goes_on_after_the_rollback_also_out_of_nested_transactions() {
    let (mut conn, table) = (connect(), table());
    for depth in [0, 1, 3] {
        fn nested(conn: &mut PgConnection, table: &str, depth: u32) -> Result<(), Error> {
            insert(conn, table, 1)?;
            match depth {
                0 => panic!("of the body"),
                _ => conn.transaction(|conn| nested(conn, table, depth - 1)),
            }
        }
        let key = fresh_key();
        let body = AssertUnwindSafe(|| conn.locked_transaction(key, patient(), |conn| nested(conn, &table, depth)));
        let panic = catch_unwind(body).unwrap_err();
        assert_eq!(*panic.downcast::<&str>().unwrap(), "of the body");
        assert_eq!(seen(&CLUSTER, key), (0, 0));
        is_clean(&mut conn);
    }
    assert_eq!(stored(&table), [0]);
}

#[test]
fn the_users_instrumentation_sees_beginning_and_rollback_and_the_commit_as_a_query() {
    let mut conn = connect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sees = Arc::clone(&seen);
    conn.set_instrumentation(move |event: InstrumentationEvent<'_>| match event {
        InstrumentationEvent::BeginTransaction { .. } => sees.lock().unwrap().push("begin"),
        InstrumentationEvent::RollbackTransaction { .. } => sees.lock().unwrap().push("rollback"),
        InstrumentationEvent::FinishQuery { query, error: None, .. } if query.to_string().ends_with("; COMMIT") => {
            sees.lock().unwrap().push("commit");
        }
        _ => {}
    });
    conn.locked_transaction(fresh_key(), patient(), |_| Ok::<_, Error>(()))
        .unwrap();
    conn.locked_transaction(fresh_key(), patient(), |_| Err::<(), _>(Whim("no")))
        .unwrap_err();
    assert_eq!(*seen.lock().unwrap(), ["begin", "commit", "begin", "rollback"]);
}

#[test]
fn a_lock_that_is_held_is_waited_for_and_its_lock_timeout_restored() {
    let (mut conn, table) = (connect(), table());
    conn.batch_execute("SET lock_timeout = '4321ms'").unwrap();
    for options in [patient(), XactOptions::without_limit(), patient().shared()] {
        let key = fresh_key();
        let holding = until_waited_for(&CLUSTER, key, || ());
        conn.locked_transaction(key, options, |conn| {
            assert_eq!(seen(&CLUSTER, key), (1, 0));
            assert_eq!(shown(conn, "lock_timeout"), "4321ms");
            insert(conn, &table, 1)
        })
        .unwrap();
        holding.ended();
        assert_eq!(shown(&mut conn, "lock_timeout"), "4321ms");
    }
    assert_eq!(stored(&table), [0, 1, 1, 1]);
    is_clean(&mut conn);
}

#[test]
fn a_wait_goes_on_for_longer_than_one_slice_of_it() {
    let mut conn = connect();
    let key = fresh_key();
    // The first message has failed when the second round of waiting is seen.
    let first_is_over = || {
        let told = || CLUSTER.log().contains("lock timeout");
        assert!(latchwork_harness::wait_until(LONG, told));
    };
    let holding = until_waited_for(&CLUSTER, key, first_is_over);
    let held = conn.locked_transaction(key, patient(), |_| Ok::<_, Error>(seen(&CLUSTER, key)));
    assert_eq!(held.unwrap(), (1, 0));
    holding.ended();
    is_clean(&mut conn);
}

#[test]
fn a_transaction_that_is_open_already_is_an_error_and_goes_on() {
    let (mut conn, table) = (connect(), table());
    conn.transaction(|conn| {
        insert(conn, &table, 1)?;
        let error = conn.locked_transaction(fresh_key(), patient(), |_| Ok::<_, Error>(()));
        assert!(matches!(error, Err(LockedError::Begin(_))), "{error:?}");
        let error = conn.try_locked_transaction(fresh_key(), |_| Ok::<_, Error>(()));
        assert!(matches!(error, Err(LockedError::Begin(_))), "{error:?}");
        conn.xact_lock(fresh_key()).within(LONG).unwrap();
        insert(conn, &table, 2)
    })
    .unwrap();
    assert_eq!(stored(&table), [0, 1, 2]);
    is_clean(&mut conn);
}

#[test]
fn one_that_diesel_does_not_know_of_is_never_committed() {
    let (mut conn, table) = (connect(), table());
    for waits in [true, false] {
        conn.batch_execute("BEGIN").unwrap();
        insert(&mut conn, &table, 1).unwrap();
        let body = |conn: &mut PgConnection| insert(conn, &table, 2);
        let error = if waits {
            conn.locked_transaction(fresh_key(), patient(), body).map(Some)
        } else {
            conn.try_locked_transaction(fresh_key(), body)
        };
        assert!(matches!(error, Err(LockedError::Begin(_))), "{error:?}");
        is_clean(&mut conn);
    }
    assert_eq!(stored(&table), [0]);
    // One that has failed already had nothing to lose.
    conn.batch_execute("BEGIN").unwrap();
    conn.batch_execute("SELECT 1 / 0").unwrap_err();
    conn.locked_transaction(fresh_key(), patient(), |conn| insert(conn, &table, 3))
        .unwrap();
    assert_eq!(stored(&table), [0, 3]);
    AnsiTransactionManager::begin_transaction(&mut conn).unwrap();
    AnsiTransactionManager::rollback_transaction(&mut conn).unwrap();
    is_clean(&mut conn);
}
