//! How often the network is crossed.

use latchwork_harness::Proxy;
use latchwork_sea_orm::{LockedTransactionExt as _, XactOptions};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, DbErr, TransactionTrait as _};

use crate::support::{SOON, World, eventually, fresh_key, pool};

#[tokio::test]
async fn a_locked_transaction_costs_one_round_trip_more_than_one_without_a_lock() {
    let world = World::new().await;
    let proxy = Proxy::start(world.cluster.endpoint()).unwrap();
    let db: DatabaseConnection = pool(&proxy.url(), 1).await.into();
    let trips = async || {
        // The driver looks at a connection once more on its way to the pool.
        let pool = db.get_postgres_connection_pool();
        eventually("the connection is back", async || pool.num_idle() == 1).await;
        proxy.round_trips()
    };
    let begun = trips().await;
    let plain = db.begin().await.unwrap();
    plain.execute_unprepared("SELECT 1").await.unwrap();
    plain.commit().await.unwrap();
    let plain = trips().await - begun;

    for keys in [vec![fresh_key()], vec![fresh_key(), fresh_key()]] {
        let begun = trips().await;
        let locked = db.locked_transaction(keys, XactOptions::within(SOON), async |tx| {
            tx.execute_unprepared("SELECT 1").await?;
            Ok::<_, DbErr>(())
        });
        locked.await.unwrap();
        assert_eq!(trips().await - begun, plain + 1);
    }
}
