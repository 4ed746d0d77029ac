//! Running it again.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use diesel::connection::SimpleConnection as _;
use diesel::result::Error;
use diesel::{PgConnection, RunQueryDsl as _, sql_query};
use latchwork_core::xact::XactOptions;
use latchwork_diesel::{LockedError, LockedTransactionExt as _, XactLockError, XactLockExt as _};

use crate::support::{CLUSTER, LONG, MOMENT, connect, fresh_key, insert, is_clean, patient, stored, table, while_held};

const THREE: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// A user's own error, with what was behind it as its source.
#[derive(Debug, thiserror::Error)]
enum ShopError {
    #[error("the database failed")]
    Database(#[from] Error),
    #[error("the second lock failed")]
    Lock(#[from] XactLockError),
}

const UNSERIALIZABLE: &str = "DO $$ BEGIN RAISE 'not serializable' USING ERRCODE = '40001'; END $$";

#[test]
fn a_serialization_failure_in_the_body_is_run_again_and_stored_once() {
    let (mut conn, table) = (connect(), table());
    let runs = Cell::new(0);
    conn.retrying_locked_transaction(fresh_key(), patient(), THREE, |conn| {
        runs.set(runs.get() + 1);
        insert(conn, &table, runs.get())?;
        if runs.get() < 3 {
            conn.batch_execute(UNSERIALIZABLE)?;
        }
        Ok::<_, ShopError>(())
    })
    .unwrap();
    assert_eq!((runs.get(), stored(&table)), (3, vec![0, 3]));
    is_clean(&mut conn);
}

#[test]
fn a_serialization_failure_in_the_commit_is_run_again() {
    let (mut conn, table) = (connect(), table());
    // A sequence is not rolled back, so it counts the commits that were tried.
    let sql = format!(
        "CREATE SEQUENCE {table}_tries; \
         CREATE FUNCTION {table}_check() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           IF nextval('{table}_tries') < 3 THEN RAISE 'not serializable' USING ERRCODE = '40001'; END IF; \
           RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER checked AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED \
           FOR EACH ROW EXECUTE FUNCTION {table}_check()"
    );
    CLUSTER.psql(&sql).unwrap();
    let runs = Cell::new(0);
    conn.retrying_locked_transaction(fresh_key(), patient(), THREE, |conn| {
        runs.set(runs.get() + 1);
        insert(conn, &table, runs.get())
    })
    .unwrap();
    assert_eq!((runs.get(), stored(&table)), (3, vec![0, 3]));
}

#[test]
fn a_deadlock_in_the_body_is_run_again() {
    let (one, two) = (table(), table());
    let (both_have_one, runs) = (Barrier::new(2), AtomicU32::new(0));
    let crosswise = |first: &str, second: &str| {
        let (mut conn, run) = (quickly_deadlocked(), Cell::new(0));
        let both = |conn: &mut PgConnection| {
            run.set(run.get() + 1);
            runs.fetch_add(1, Ordering::Relaxed);
            let add = |table| sql_query(format!("UPDATE {table} SET number = number + 1"));
            add(first).execute(conn)?;
            if run.get() == 1 {
                both_have_one.wait();
            }
            add(second).execute(conn)?;
            Ok::<_, ShopError>(())
        };
        conn.retrying_locked_transaction(fresh_key(), patient(), THREE, both)
            .unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(|| crosswise(&one, &two));
        scope.spawn(|| crosswise(&two, &one));
    });
    assert_eq!((stored(&one), stored(&two)), (vec![2], vec![2]));
    assert_eq!(runs.into_inner(), 3, "one of the two was a victim");
}

#[test]
fn a_deadlock_of_locks_in_the_body_is_run_again() {
    let (one, two) = (fresh_key(), fresh_key());
    let (both_have_one, runs) = (Barrier::new(2), AtomicU32::new(0));
    let crosswise = |first, second| {
        let (mut conn, run) = (quickly_deadlocked(), Cell::new(0));
        let both = |conn: &mut PgConnection| {
            run.set(run.get() + 1);
            runs.fetch_add(1, Ordering::Relaxed);
            if run.get() == 1 {
                both_have_one.wait();
            }
            conn.xact_lock(second).within(LONG)?;
            Ok::<_, ShopError>(())
        };
        conn.retrying_locked_transaction(first, patient(), THREE, both).unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(|| crosswise(one, two));
        scope.spawn(|| crosswise(two, one));
    });
    assert_eq!(runs.into_inner(), 3, "one of the two was a victim");
}

#[test]
fn there_are_as_many_runs_as_allowed() {
    let mut conn = connect();
    for allowed in [NonZeroU32::MIN, THREE] {
        let runs = Cell::new(0);
        let said = conn.retrying_locked_transaction(fresh_key(), patient(), allowed, |conn| {
            runs.set(runs.get() + 1);
            conn.batch_execute(UNSERIALIZABLE).map_err(ShopError::from)
        });
        assert!(
            matches!(said, Err(LockedError::Body(ShopError::Database(_)))),
            "{said:?}"
        );
        assert_eq!(runs.get(), allowed.get());
        is_clean(&mut conn);
    }
}

#[test]
fn nothing_else_is_run_again() {
    let mut conn = connect();
    for fails in ["SELECT 1 / 0", "DO $$ BEGIN RAISE unique_violation; END $$"] {
        let runs = Cell::new(0);
        let said = conn.retrying_locked_transaction(fresh_key(), patient(), THREE, |conn| {
            runs.set(runs.get() + 1);
            conn.batch_execute(fails)
        });
        assert!(matches!(said, Err(LockedError::Body(_))), "{said:?}");
        assert_eq!(runs.get(), 1, "{fails}");
    }
    let key = fresh_key();
    while_held(key, || {
        let options = XactOptions::within(MOMENT);
        let late = conn.retrying_locked_transaction(key, options, THREE, |_| Ok::<_, ShopError>(()));
        assert!(late.unwrap_err().is_timeout());
    });
    is_clean(&mut conn);
}

fn quickly_deadlocked() -> PgConnection {
    let mut conn = connect();
    conn.batch_execute("SET deadlock_timeout = '50ms'").unwrap();
    conn
}
