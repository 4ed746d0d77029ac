//! Transactions that begin with a lock: what is stored, and what is said of it.

mod ends;

use std::num::NonZeroU32;

use latchwork_sea_orm::{Key, LockedError, LockedTransactionExt as _, XactOptions};
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DatabaseConnectionType, DatabaseTransaction, DbErr,
    sqlx::postgres::PgPoolOptions,
};

use crate::support::{MOMENT, SOON, World, fresh_key};

const OPTIONS: XactOptions = XactOptions::within(SOON);

/// A world with a table to store things in.
async fn world() -> World {
    let world = World::new().await;
    world
        .cluster
        .psql("CREATE TABLE stored (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        .unwrap();
    world
}

async fn stores(tx: &DatabaseTransaction, n: i32) -> Result<i32, DbErr> {
    tx.execute_unprepared(&format!("INSERT INTO stored VALUES ({n})"))
        .await?;
    Ok(n)
}

async fn stored(world: &World) -> String {
    world
        .value("SELECT coalesce(string_agg(n::text, ',' ORDER BY n), '') FROM stored")
        .await
}

#[tokio::test]
async fn without_a_connection_nothing_begins() {
    let world = world().await;
    let options = PgPoolOptions::new().max_connections(1).acquire_timeout(MOMENT);
    let db: DatabaseConnection = options.connect_lazy(&world.cluster.url()).unwrap().into();
    let only_connection = loop {
        if let Ok(connection) = db.get_postgres_connection_pool().acquire().await {
            break connection;
        }
    };
    let error = db
        .locked_transaction(fresh_key(), OPTIONS, async |tx| stores(tx, 1).await)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, LockedError::Begin(cause) if cause.is::<DbErr>()),
        "{error:?}"
    );
    drop(only_connection);
}

#[tokio::test]
async fn what_is_no_pool_of_postgresql_is_refused() {
    let db = DatabaseConnection::from(DatabaseConnectionType::Disconnected);
    let refused = db
        .locked_transaction(fresh_key(), OPTIONS, async |tx| stores(tx, 1).await)
        .await
        .unwrap_err();
    let LockedError::Begin(cause) = refused else {
        panic!("{refused:?}");
    };
    assert!(cause.to_string().contains("PostgreSQL"), "{cause}");
}

#[test]
fn what_is_awaited_may_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn check(db: &DatabaseConnection, name: &str) {
        is_send(&db.locked_transaction(Key::bigint(1), OPTIONS, async |tx| stores(tx, 1).await));
        is_send(
            &db.try_locked_transaction(Key::bigint(1), async |tx: &DatabaseTransaction| {
                tx.execute_unprepared(name).await
            }),
        );
        is_send(
            &db.retrying_locked_transaction(Key::bigint(1), OPTIONS, NonZeroU32::MIN, async |tx| {
                tx.execute_unprepared(name).await?;
                stores(tx, 1).await
            }),
        );
    }
    let _ = check;
}
