//! How many round trips it costs, as a proxy counts them.

use diesel::connection::SimpleConnection as _;
use diesel::result::Error;
use diesel::{Connection as _, PgConnection};
use latchwork_diesel::{LockedTransactionExt as _, XactLockExt as _};
use latchwork_harness::Proxy;

use crate::support::{CLUSTER, LONG, fresh_key, patient};

fn work(conn: &mut PgConnection) -> Result<(), Error> {
    conn.batch_execute("SELECT 1")
}

#[test]
fn a_locked_transaction_costs_no_more_than_one_without_a_lock() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let mut conn = PgConnection::establish(&proxy.url()).unwrap();
    let mut trips = |run: &mut dyn FnMut(&mut PgConnection)| {
        let before = proxy.round_trips();
        run(&mut conn);
        proxy.round_trips() - before
    };
    let several = [fresh_key(), fresh_key(), fresh_key()];
    let plain = trips(&mut |conn| conn.transaction(work).unwrap());
    assert_eq!(plain, 3);
    let one = trips(&mut |conn| conn.locked_transaction(fresh_key(), patient(), work).unwrap());
    assert_eq!(one, plain);
    let three = trips(&mut |conn| conn.locked_transaction(several, patient(), work).unwrap());
    assert_eq!(three, plain);
    let tried = trips(&mut |conn| assert!(conn.try_locked_transaction(fresh_key(), work).unwrap().is_some()));
    assert_eq!(tried, plain + 1);
    let tried = trips(&mut |conn| assert!(conn.try_locked_transaction(several, work).unwrap().is_some()));
    assert_eq!(tried, plain + 2);
    let inside = trips(&mut |conn| {
        let taken = conn.transaction(|conn| {
            conn.xact_lock(fresh_key()).within(LONG).unwrap();
            work(conn)
        });
        taken.unwrap();
    });
    assert_eq!(inside, plain + 1);
}
