//! PgBouncer in transaction mode.

use std::thread;

use diesel::connection::{CacheSize, SimpleConnection as _};
use diesel::result::Error;
use diesel::{Connection as _, PgConnection};
use latchwork_core::xact::XactOptions;
use latchwork_diesel::{LockedError, LockedTransactionExt as _, XactLockExt as _};
use latchwork_harness::{PgBouncer, PoolMode};

use crate::pools::increment;
use crate::support::{CLUSTER, LONG, MOMENT, fresh_key, insert, patient, seen, stored, table, while_held};

fn pooler() -> PgBouncer {
    let builder = PgBouncer::builder(&CLUSTER, PoolMode::Transaction);
    builder.setting("default_pool_size", 2).start().unwrap()
}

/// This pooler knows no prepared statements, and diesel's own would fail.
fn connect(pooler: &PgBouncer) -> PgConnection {
    let mut conn = PgConnection::establish(&pooler.url()).unwrap();
    conn.set_prepared_statement_cache_size(CacheSize::Disabled);
    conn
}

#[test]
fn a_counter_is_exact() {
    let (pooler, table, key) = (pooler(), table(), fresh_key());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut conn = connect(&pooler);
                for _ in 0..25 {
                    conn.locked_transaction(key, patient(), |conn| increment(conn, &table))
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(stored(&table), [200]);
}

#[test]
fn locks_and_ends_mean_what_they_mean_without_it() {
    let (pooler, table, key) = (pooler(), table(), fresh_key());
    let mut conn = connect(&pooler);
    while_held(key, || {
        let tried = conn.try_locked_transaction(key, |_| Ok::<_, Error>(()));
        assert!(tried.unwrap().is_none());
        let late = conn.locked_transaction(key, XactOptions::within(MOMENT), |_| Ok::<_, Error>(()));
        assert!(late.unwrap_err().is_timeout());
    });
    conn.transaction(|conn| {
        conn.xact_lock([key, fresh_key()]).within(LONG).unwrap();
        assert_eq!(seen(&CLUSTER, key), (1, 0));
        insert(conn, &table, 1)
    })
    .unwrap();
    assert_eq!(seen(&CLUSTER, key), (0, 0));
    let aborted = conn.locked_transaction(key, patient(), |conn| {
        insert(conn, &table, 2)?;
        conn.batch_execute("SELECT 1 / 0").unwrap_err();
        Ok::<_, Error>(())
    });
    assert!(matches!(aborted, Err(LockedError::Aborted(_))), "{aborted:?}");
    let ended = conn.locked_transaction(key, patient(), |conn| conn.batch_execute("COMMIT AND CHAIN"));
    assert!(matches!(ended, Err(LockedError::OutcomeUnknown(_))), "{ended:?}");
    assert_eq!(stored(&table), [0, 1]);
}
