//! Transactions that begin with a lock: what is stored, and what is said of it.

mod ends;
mod lost;

use std::num::NonZeroU32;

use latchwork_sea_orm::{Key, LockedError, LockedTransactionExt as _, XactOptions};
use sea_orm::{
    ConnectionTrait as _, DatabaseConnection, DatabaseConnectionType, DatabaseTransaction, DbErr, Statement,
    sqlx::postgres::PgPoolOptions,
};

use crate::support::{self, MOMENT, SOON, World, fresh_key};

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
async fn a_body_runs_under_its_lock_and_is_committed() {
    let world = world().await;
    let db = world.database(2).await;
    let (one, other) = (fresh_key(), fresh_key());
    let (world_in, n) = (&world, 5);
    let done = db.locked_transaction([one, other], OPTIONS, async |tx| {
        assert_eq!((world_in.seen(one).await, world_in.seen(other).await), ((1, 0), (1, 0)));
        assert_eq!(
            world_in
                .cluster
                .psql(&format!("SELECT pg_try_advisory_lock({one})"))
                .unwrap(),
            "f"
        );
        stores(tx, n).await
    });
    assert_eq!(done.await.unwrap(), 5);
    assert_eq!((stored(&world).await, world.all_seen().await), ("5".to_owned(), (0, 0)));
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
    assert_eq!(world.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn an_error_and_a_panic_of_the_body_roll_back_and_go_on() {
    let world = world().await;
    let db = world.database(1).await;
    let key = fresh_key();
    let failed = db.locked_transaction(key, OPTIONS, async |tx| {
        stores(tx, 1).await.unwrap();
        Err::<(), _>("the body's own error")
    });
    assert_eq!(failed.await.unwrap_err().into_body().unwrap(), "the body's own error");
    assert_eq!((stored(&world).await, world.all_seen().await), (String::new(), (0, 0)));

    let by_task = db.clone();
    let panics = tokio::spawn(async move {
        let body = async |tx: &DatabaseTransaction| {
            stores(tx, 2).await.unwrap();
            if true {
                panic!("the body's own panic");
            }
            Ok::<_, DbErr>(())
        };
        by_task.locked_transaction(key, OPTIONS, body).await
    });
    let panic = panics.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"the body's own panic"));
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
    assert_eq!(stored(&world).await, "");
}

#[tokio::test]
async fn an_attempt_runs_the_body_or_says_that_others_have_the_lock() {
    let world = world().await;
    let db = world.database(2).await;
    let key = fresh_key();
    let within = db.locked_transaction(key, OPTIONS, async |_| {
        let busy = db
            .try_locked_transaction(key, async |tx| stores(tx, 1).await)
            .await
            .unwrap();
        let late = db.locked_transaction(key, XactOptions::within(MOMENT), async |tx| stores(tx, 2).await);
        let late = late.await.unwrap_err();
        assert!(late.is_timeout(), "{late:?}");
        Ok::<_, DbErr>(busy)
    });
    assert_eq!(within.await.unwrap(), None);
    let free = db
        .try_locked_transaction(key, async |tx| stores(tx, 3).await)
        .await
        .unwrap();
    assert_eq!((free, stored(&world).await), (Some(3), "3".to_owned()));
    world.comes_to_rest().await;
    assert_eq!(world.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn readers_run_together() {
    let world = world().await;
    let db = world.database(3).await;
    let key = fresh_key();
    let readers = OPTIONS.shared();
    let outer = db.locked_transaction(key, readers.clone(), async |_| {
        let inner = db.locked_transaction(key, readers, async |_| {
            assert_eq!(world.seen(key).await, (2, 0));
            Ok::<_, DbErr>(
                db.try_locked_transaction(key, async |tx| stores(tx, 1).await)
                    .await
                    .unwrap(),
            )
        });
        Ok::<_, DbErr>(inner.await.unwrap())
    });
    assert_eq!(outer.await.unwrap(), None);
}

/// A writer that comes while one runs sees what that has committed, whatever the default of the database is.
#[tokio::test]
async fn the_work_sees_what_the_last_holder_has_committed() {
    let world = world().await;
    world
        .cluster
        .psql("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
        .unwrap();
    let db = world.database(2).await;
    let key = fresh_key();
    let count = async |tx: &DatabaseTransaction| {
        let sql = "SELECT count(*)::text, current_setting('transaction_isolation') FROM stored";
        let row = tx
            .query_one_raw(Statement::from_string(tx.get_database_backend(), sql))
            .await?;
        let row = row.unwrap();
        Ok::<(String, String), DbErr>((row.try_get_by_index(0)?, row.try_get_by_index(1)?))
    };
    let first = db.locked_transaction(key, OPTIONS, async |tx| {
        let second = tokio::spawn({
            let db = db.clone();
            async move { db.locked_transaction(key, OPTIONS, count).await.unwrap() }
        });
        world.becomes(key, (1, 1)).await;
        stores(tx, 1).await?;
        Ok::<_, DbErr>(second)
    });
    let second = first.await.unwrap();
    assert_eq!(second.await.unwrap(), ("1".to_owned(), "read committed".to_owned()));
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
