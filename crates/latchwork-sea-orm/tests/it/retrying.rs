//! Transactions that are run again.

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering},
};

use latchwork_sea_orm::{LockedTransactionExt as _, XactLockError, XactOptions};
use sea_orm::{ConnectionTrait as _, DatabaseTransaction, DbErr, TransactionError, TransactionTrait as _};

use crate::support::{SOON, World, eventually, fresh_key};

const OPTIONS: XactOptions = XactOptions::within(SOON);
const THREE: NonZeroU32 = NonZeroU32::new(3).unwrap();

/// An error of a service's own, around that of the library.
#[derive(Debug, thiserror::Error)]
enum OrderError {
    #[error("the database failed")]
    Database(#[from] DbErr),
    #[error("the lock failed")]
    Lock(#[from] XactLockError),
    #[error("the nested transaction failed")]
    Nested(#[from] TransactionError<DbErr>),
}

async fn waits_for_a_row(world: &World) {
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = 'active'";
    eventually("somebody waits for a row", async || world.value(waits).await == "1").await;
}

/// A row that is moved to another partition under the body's UPDATE is a serialization failure in READ COMMITTED.
#[tokio::test]
async fn a_serialization_failure_in_the_body_is_run_again() {
    let world = World::new().await;
    let makes = "CREATE TABLE parts (part int, n int) PARTITION BY LIST (part); \
         CREATE TABLE one PARTITION OF parts FOR VALUES IN (1); CREATE TABLE two PARTITION OF parts FOR VALUES IN (2); \
         INSERT INTO parts VALUES (1, 0)";
    world.cluster.psql(makes).unwrap();
    let (db, other) = (world.database(1).await, world.database(1).await);
    for nested in [false, true] {
        world.cluster.psql("UPDATE parts SET n = 0").unwrap();
        let moves = other.begin().await.unwrap();
        moves
            .execute_unprepared("UPDATE parts SET part = 3 - part")
            .await
            .unwrap();
        let runs = AtomicU32::new(0);
        let runs = &runs;
        let update =
            async |tx: &DatabaseTransaction| tx.execute_unprepared("UPDATE parts SET n = n + 1").await.map(drop);
        let body = async |tx: &DatabaseTransaction| {
            runs.fetch_add(1, Ordering::Relaxed);
            if nested {
                tx.transaction_async(update).await?;
            } else {
                update(tx).await?;
            }
            Ok::<_, OrderError>(())
        };
        let (done, ()) = tokio::join!(
            db.retrying_locked_transaction(fresh_key(), OPTIONS, THREE, body),
            async {
                waits_for_a_row(&world).await;
                moves.commit().await.unwrap();
            }
        );
        done.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
        assert_eq!(world.value("SELECT n FROM parts").await, "1");
    }
}
