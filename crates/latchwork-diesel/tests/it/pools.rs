//! Connections of r2d2 pools.

use std::panic::{AssertUnwindSafe, catch_unwind};

use diesel::PgConnection;
use diesel::connection::SimpleConnection as _;
use diesel::r2d2::{ConnectionManager, PooledConnection};
use diesel::result::Error;
use latchwork_core::xact::XactOptions;
use latchwork_diesel::{LockedError, LockedTransactionExt as _, XactLockExt as _};

use crate::support::{
    CLUSTER, LONG, MOMENT, fresh_key, insert, is_clean, patient, pid, pool, seen, stored, table, while_held,
};

/// A body that ends in some way.
type End<'a> = dyn Fn(&mut PooledConnection<ConnectionManager<PgConnection>>) -> Result<(), Error> + 'a;

#[test]
fn the_next_borrower_of_a_pool_of_one_finds_a_clean_connection_after_each_end() {
    let (pool, table, key) = (pool(&CLUSTER.url(), 1), table(), fresh_key());
    let first = pid(&mut pool.get().unwrap());
    let ends: [&End<'_>; 5] = [
        &|conn| insert(conn, &table, 1).map(drop),
        &|_| Err(Error::NotFound),
        &|conn| {
            drop(conn.batch_execute("SELECT 1 / 0"));
            Ok(())
        },
        &|conn| conn.batch_execute("COMMIT AND CHAIN"),
        &|_| panic!("of the body"),
    ];
    for end in ends {
        let mut conn = pool.get().unwrap();
        let ran = catch_unwind(AssertUnwindSafe(|| conn.locked_transaction(key, patient(), end)));
        assert_eq!(seen(&CLUSTER, key), (0, 0), "{ran:?}");
        drop(conn);
        is_clean(&mut pool.get().unwrap());
    }
    while_held(key, || {
        let mut conn = pool.get().unwrap();
        let options = XactOptions::within(MOMENT);
        let late = conn.locked_transaction(key, options, |_| -> Result<(), ()> { unreachable!() });
        assert!(late.unwrap_err().is_timeout());
    });
    let mut conn = pool.get().unwrap();
    is_clean(&mut conn);
    assert_eq!(pid(&mut conn), first, "a connection in order was closed");
    assert_eq!(stored(&table), [0, 1]);
}

#[test]
fn the_other_methods_work_on_pooled_connections() {
    let (pool, table) = (pool(&CLUSTER.url(), 1), table());
    let mut conn = pool.get().unwrap();
    let (key, more) = (fresh_key(), fresh_key());
    conn.try_locked_transaction(key, |conn| {
        conn.xact_lock(more).within(LONG).unwrap();
        assert_eq!((seen(&CLUSTER, key), seen(&CLUSTER, more)), ((1, 0), (1, 0)));
        diesel::Connection::transaction(conn, |conn| insert(conn, &table, 1))
    })
    .unwrap()
    .unwrap();
    let error = conn.try_xact_lock(key).unwrap_err();
    assert!(matches!(error, latchwork_diesel::XactLockError::NoTransaction { .. }));
    let attempts = const { std::num::NonZeroU32::new(2).unwrap() };
    conn.retrying_locked_transaction(key, patient(), attempts, |conn| insert(conn, &table, 2))
        .unwrap();
    assert_eq!(stored(&table), [0, 1, 2]);
}

#[test]
fn an_abandoned_request_runs_to_its_end_and_gives_the_connection_back() {
    let (pool, table, key) = (pool(&CLUSTER.url(), 1), table(), fresh_key());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    while_held(key, || {
        let (pool, table) = (pool.clone(), table.clone());
        let request = runtime.spawn_blocking(move || {
            let mut conn = pool.get().unwrap();
            conn.locked_transaction(key, patient(), |conn| insert(conn, &table, 1))
        });
        crate::support::becomes(&CLUSTER, key, (1, 1));
        drop(request);
    });
    // There is no other connection, so this comes after it.
    let mut conn = pool.get().unwrap();
    let said: Result<_, LockedError<Error>> = conn.try_locked_transaction(key, |_| Ok(()));
    assert!(said.unwrap().is_some());
    assert_eq!(stored(&table), [0, 1]);
}
