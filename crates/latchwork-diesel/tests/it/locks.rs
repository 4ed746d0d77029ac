//! Locks in a transaction that is open already.

use diesel::connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager as _};
use diesel::result::Error;
use diesel::{Connection as _, PgConnection};
use latchwork_diesel::{Key, XactLockError, XactLockExt as _};

use crate::support::{CLUSTER, LONG, MOMENT, becomes, connect, fresh_key, is_clean, seen, shown, until_waited_for};

fn begin(conn: &mut PgConnection) {
    AnsiTransactionManager::begin_transaction(conn).unwrap();
}

fn roll_back(conn: &mut PgConnection) {
    AnsiTransactionManager::rollback_transaction(conn).unwrap();
}

fn is_usable(conn: &mut PgConnection) -> bool {
    conn.batch_execute("SELECT 1").is_ok()
}

#[test]
fn a_lock_is_held_until_the_transaction_ends_either_way() {
    let mut conn = connect();
    for key in [
        fresh_key(),
        Key::bigint(i64::MIN),
        Key::bigint(i64::MAX),
        Key::pair(i32::MIN, i32::MAX),
    ] {
        for commit in [true, false] {
            begin(&mut conn);
            conn.xact_lock(key).within(LONG).unwrap();
            assert_eq!(seen(&CLUSTER, key), (1, 0), "{key}");
            if commit {
                AnsiTransactionManager::commit_transaction(&mut conn).unwrap();
            } else {
                roll_back(&mut conn);
            }
            assert_eq!(seen(&CLUSTER, key), (0, 0), "{key}");
            is_clean(&mut conn);
        }
    }
}

#[test]
fn a_lock_excludes_plain_sql_in_another_session_and_the_other_way_round() {
    let mut conn = connect();
    let key = fresh_key();
    let tries = format!("SELECT pg_try_advisory_xact_lock({})", key.sql_arguments());
    begin(&mut conn);
    assert!(conn.try_xact_lock(key).unwrap());
    assert_eq!(CLUSTER.psql(&tries).unwrap(), "f");
    roll_back(&mut conn);
    assert_eq!(CLUSTER.psql(&tries).unwrap(), "t");

    let mut other = connect();
    other
        .batch_execute(&format!("SELECT pg_advisory_lock({})", key.sql_arguments()))
        .unwrap();
    begin(&mut conn);
    assert!(!conn.try_xact_lock(key).unwrap());
    assert!(!conn.try_xact_lock_shared(key).unwrap());
    other.batch_execute("SELECT pg_advisory_unlock_all()").unwrap();
    assert!(conn.try_xact_lock(key).unwrap());
}

#[test]
fn a_second_transaction_waits_until_the_first_has_ended() {
    let mut conn = connect();
    for limited in [true, false] {
        let key = fresh_key();
        begin(&mut conn);
        let holding = until_waited_for(&CLUSTER, key, || ());
        let lock = conn.xact_lock(key);
        let granted = if limited {
            lock.within(LONG)
        } else {
            lock.without_limit()
        };
        granted.unwrap();
        holding.ended();
        assert_eq!(seen(&CLUSTER, key), (1, 0));
        roll_back(&mut conn);
    }
}

#[test]
fn shared_locks_go_together_and_keep_exclusive_ones_out() {
    let (mut one, mut two) = (connect(), connect());
    let key = fresh_key();
    begin(&mut one);
    begin(&mut two);
    one.xact_lock_shared(key).within(LONG).unwrap();
    assert!(two.try_xact_lock_shared(key).unwrap());
    assert_eq!(seen(&CLUSTER, key), (2, 0));
    roll_back(&mut two);
    begin(&mut two);
    assert!(!two.try_xact_lock(key).unwrap());
    assert!(two.xact_lock(key).within(MOMENT).unwrap_err().is_timeout());
    roll_back(&mut one);
    two.xact_lock(key).within(LONG).unwrap();
    begin(&mut one);
    assert!(!one.try_xact_lock_shared(key).unwrap());
    assert!(one.xact_lock_shared(key).within(MOMENT).unwrap_err().is_timeout());
}

#[test]
fn a_limit_that_runs_out_leaves_the_transaction_and_its_lock_timeout_as_they_were() {
    let (mut one, mut two) = (connect(), connect());
    let key = fresh_key();
    begin(&mut one);
    one.xact_lock(key).within(LONG).unwrap();
    begin(&mut two);
    two.batch_execute("SET LOCAL lock_timeout = '1234ms'").unwrap();
    let error = two.xact_lock(key).within(MOMENT).unwrap_err();
    assert!(
        matches!(error, XactLockError::TimedOut { limit: MOMENT, .. }),
        "{error:?}"
    );
    assert!(error.leaves_transaction_usable() && is_usable(&mut two));
    assert_eq!(shown(&mut two, "lock_timeout"), "1234ms");
    roll_back(&mut one);
    two.xact_lock(key).within(LONG).unwrap();
    assert_eq!(shown(&mut two, "lock_timeout"), "1234ms");
    AnsiTransactionManager::commit_transaction(&mut two).unwrap();
    assert_eq!(shown(&mut two, "lock_timeout"), "0");
}

#[test]
fn a_lock_under_a_savepoint_goes_when_that_is_rolled_back() {
    let mut conn = connect();
    let (outer, inner) = (fresh_key(), fresh_key());
    conn.transaction(|conn| {
        conn.xact_lock(outer).within(LONG).unwrap();
        let rolled_back = conn.transaction(|conn| {
            conn.xact_lock(inner).within(LONG).unwrap();
            assert_eq!(seen(&CLUSTER, inner), (1, 0));
            Err::<(), _>(Error::RollbackTransaction)
        });
        assert_eq!(rolled_back, Err(Error::RollbackTransaction));
        assert_eq!((seen(&CLUSTER, outer), seen(&CLUSTER, inner)), ((1, 0), (0, 0)));
        conn.transaction(|conn| {
            conn.xact_lock(inner).within(LONG).unwrap();
            Ok::<_, Error>(())
        })?;
        assert_eq!((seen(&CLUSTER, outer), seen(&CLUSTER, inner)), ((1, 0), (1, 0)));
        Ok::<_, Error>(())
    })
    .unwrap();
    becomes(&CLUSTER, inner, (0, 0));
    is_clean(&mut conn);
}

#[test]
fn a_wait_that_is_cancelled_leaves_the_transaction_usable() {
    let mut conn = connect();
    let key = fresh_key();
    begin(&mut conn);
    let pid = crate::support::pid(&mut conn);
    let cancel = move || {
        CLUSTER.psql(&format!("SELECT pg_cancel_backend({pid})")).unwrap();
        becomes(&CLUSTER, key, (1, 0));
    };
    let holding = until_waited_for(&CLUSTER, key, cancel);
    let error = conn.xact_lock(key).within(LONG).unwrap_err();
    assert!(matches!(error, XactLockError::Cancelled { .. }), "{error:?}");
    holding.ended();
    assert!(is_usable(&mut conn));
    conn.xact_lock(key).within(LONG).unwrap();
}
