//! Several keys at once.

use std::thread;

use diesel::connection::{AnsiTransactionManager, SimpleConnection as _, TransactionManager as _};
use diesel::result::Error;
use latchwork_core::xact::XactOptions;
use latchwork_diesel::{Key, KeySet, LockedTransactionExt as _, XactLockExt as _};

use crate::support::{
    CLUSTER, LONG, MOMENT, connect, fresh_key, is_clean, patient, seen, until_waited_for, while_held,
};

fn three() -> [Key; 3] {
    let mut keys = [fresh_key(), fresh_key(), Key::pair(fastrand::i32(..), 1)];
    keys.sort();
    keys
}

#[test]
fn all_are_taken_or_none_is() {
    let mut conn = connect();
    for busy in 0..3 {
        let keys = three();
        while_held(keys[busy], || {
            AnsiTransactionManager::begin_transaction(&mut conn).unwrap();
            assert!(!conn.try_xact_lock(keys).unwrap());
            assert!(conn.xact_lock(keys).within(MOMENT).unwrap_err().is_timeout());
            for (at, key) in keys.into_iter().enumerate() {
                assert_eq!(seen(&CLUSTER, key), (u32::from(at == busy), 0), "{busy}");
            }
            conn.batch_execute("SELECT 1").unwrap();
            AnsiTransactionManager::rollback_transaction(&mut conn).unwrap();

            let body = |_: &mut _| -> Result<(), ()> { unreachable!() };
            let error = conn.locked_transaction(keys, XactOptions::within(MOMENT), body);
            assert!(error.unwrap_err().is_timeout());
            is_clean(&mut conn);
            assert!(conn.try_locked_transaction(keys, body).unwrap().is_none());
            is_clean(&mut conn);
        });
        let held = |_: &mut _| Ok::<_, Error>(keys.map(|key| seen(&CLUSTER, key)));
        let held = conn.locked_transaction(keys, patient(), held).unwrap();
        assert_eq!(held, [(1, 0); 3]);
    }
}

#[test]
fn each_of_them_is_waited_for() {
    let mut conn = connect();
    for busy in 0..3 {
        let keys = three();
        let holding = until_waited_for(&CLUSTER, keys[busy], || ());
        let held = |_: &mut _| Ok::<_, Error>(keys.map(|key| seen(&CLUSTER, key)));
        assert_eq!(conn.locked_transaction(keys, patient(), held).unwrap(), [(1, 0); 3]);
        holding.ended();

        let holding = until_waited_for(&CLUSTER, keys[busy], || ());
        AnsiTransactionManager::begin_transaction(&mut conn).unwrap();
        conn.xact_lock(keys).within(LONG).unwrap();
        assert_eq!(keys.map(|key| seen(&CLUSTER, key)), [(1, 0); 3]);
        holding.ended();
        AnsiTransactionManager::rollback_transaction(&mut conn).unwrap();
        is_clean(&mut conn);
    }
}

#[test]
fn none_at_all_is_a_transaction_without_a_lock() {
    let mut conn = connect();
    let none = || KeySet::from([]);
    conn.locked_transaction(none(), patient(), |_| Ok::<_, Error>(()))
        .unwrap();
    let tried = conn.try_locked_transaction(none(), |_| Ok::<_, Error>(()));
    assert!(tried.unwrap().is_some());
    is_clean(&mut conn);
}

#[test]
fn sets_that_overlap_in_any_order_do_not_deadlock() {
    let keys = three();
    thread::scope(|scope| {
        for turn in 0..6 {
            scope.spawn(move || {
                let mut conn = connect();
                for round in 0..20 {
                    let mut mine = keys;
                    mine.rotate_left((turn + round) % 3);
                    let two = [mine[0], mine[1]];
                    conn.locked_transaction(two, patient(), |_| Ok::<_, Error>(())).unwrap();
                }
            });
        }
    });
}
