//! COMMIT means committed.

use diesel::PgConnection;
use diesel::connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager as _};
use diesel::result::{DatabaseErrorKind, Error};
use latchwork_diesel::{LockedError, LockedTransactionExt as _};

use crate::support::{CLUSTER, connect, fresh_key, insert, is_clean, patient, seen, stored, table};

type Said = Result<(), LockedError<Error>>;

fn both_ways(conn: &mut PgConnection, body: impl Fn(&mut PgConnection) -> Result<(), Error>) -> [Said; 2] {
    let key = fresh_key();
    let waited = conn.locked_transaction(key, patient(), &body);
    assert_eq!(seen(&CLUSTER, key), (0, 0));
    is_clean(conn);
    let tried = conn.try_locked_transaction(key, &body).map(Option::unwrap);
    assert_eq!(seen(&CLUSTER, key), (0, 0));
    is_clean(conn);
    [waited, tried]
}

#[test]
fn a_deferred_constraint_is_reported_as_aborted_with_its_cause() {
    let (mut conn, table) = (connect(), table());
    let sql = format!("ALTER TABLE {table} ADD UNIQUE (number) DEFERRABLE INITIALLY DEFERRED");
    CLUSTER.psql(&sql).unwrap();
    for said in both_ways(&mut conn, |conn| insert(conn, &table, 0).map(drop)) {
        let Err(LockedError::Aborted(cause)) = said else {
            panic!("{said:?}")
        };
        let cause = cause.downcast_ref::<Error>().unwrap();
        assert!(
            matches!(cause, Error::DatabaseError(DatabaseErrorKind::UniqueViolation, _)),
            "{cause:?}"
        );
    }
    assert_eq!(stored(&table), [0]);
}

#[test]
fn a_body_that_ends_the_transaction_itself_is_never_reported_as_committed() {
    let mut conn = connect();
    for ends in [
        "COMMIT",
        "ROLLBACK",
        "COMMIT AND CHAIN",
        "ROLLBACK AND CHAIN",
        "COMMIT; BEGIN",
        "ROLLBACK; BEGIN",
    ] {
        let table = table();
        for said in both_ways(&mut conn, |conn| {
            insert(conn, &table, 1)?;
            conn.batch_execute(ends)?;
            insert(conn, &table, 2).map(drop)
        }) {
            assert!(matches!(said, Err(LockedError::OutcomeUnknown(_))), "{ends}: {said:?}");
        }
        // What it has committed itself is there, and only what it did in no transaction of ours besides.
        let began_anew = ends.ends_with("CHAIN") || ends.ends_with("BEGIN");
        let mut expected = vec![0];
        if ends.starts_with("COMMIT") {
            expected.extend([1, 1]);
        }
        if !began_anew {
            expected.extend([2, 2]);
        }
        assert_eq!(stored(&table), expected, "{ends}");
    }
}

#[test]
fn what_it_begins_in_its_place_is_not_stored() {
    let (mut conn, table) = (connect(), table());
    for fails in [false, true] {
        for said in both_ways(&mut conn, |conn| {
            conn.batch_execute("ROLLBACK")?;
            conn.batch_execute("BEGIN")?;
            insert(conn, &table, 1)?;
            if fails { Err(Error::NotFound) } else { Ok(()) }
        }) {
            let as_expected = match &said {
                Err(LockedError::OutcomeUnknown(_)) => !fails,
                Err(LockedError::Body(Error::NotFound)) => fails,
                _ => false,
            };
            assert!(as_expected, "{said:?}");
        }
    }
    assert_eq!(stored(&table), [0]);
}

#[test]
fn a_body_that_ends_it_through_diesel_is_found_out_too() {
    let (mut conn, table) = (connect(), table());
    for said in both_ways(&mut conn, |conn| {
        AnsiTransactionManager::rollback_transaction(conn)?;
        AnsiTransactionManager::begin_transaction(conn)?;
        insert(conn, &table, 1).map(drop)
    }) {
        assert!(matches!(said, Err(LockedError::OutcomeUnknown(_))), "{said:?}");
    }
    assert_eq!(stored(&table), [0]);
}

#[test]
fn a_locked_transaction_after_the_bodys_own_end_does_not_vouch_for_it() {
    let (mut conn, table) = (connect(), table());
    for said in both_ways(&mut conn, |conn| {
        conn.batch_execute("ROLLBACK")?;
        conn.locked_transaction(fresh_key(), patient(), |conn| insert(conn, &table, 1))
            .unwrap();
        Ok(())
    }) {
        assert!(matches!(said, Err(LockedError::OutcomeUnknown(_))), "{said:?}");
    }
    assert_eq!(stored(&table), [0, 1, 1]);
}

#[test]
fn a_nested_transaction_that_is_left_open_is_not_stored() {
    let (mut conn, table) = (connect(), table());
    for said in both_ways(&mut conn, |conn| {
        AnsiTransactionManager::begin_transaction(conn)?;
        insert(conn, &table, 1).map(drop)
    }) {
        assert!(matches!(said, Err(LockedError::Aborted(_))), "{said:?}");
    }
    assert_eq!(stored(&table), [0]);
}
