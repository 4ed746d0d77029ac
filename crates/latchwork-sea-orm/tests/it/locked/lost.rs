//! Connections that end in the wait, the body, and COMMIT.

use latchwork_harness::Proxy;
use latchwork_sea_orm::{Key, LockedError, LockedTransactionExt as _, XactLockError, XactLockExt as _};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, DbErr, TransactionTrait as _};

use super::{OPTIONS, stored, stores, world};
use crate::support::{self, SOON, fresh_key, pool};

#[tokio::test]
async fn a_backend_that_is_killed_in_the_wait_or_the_body_has_stored_nothing() {
    let world = world().await;
    let db = world.database(2).await;
    let key = fresh_key();
    let holder = db.begin().await.unwrap();
    holder.xact_lock(key).within(SOON).await.unwrap();
    let (waited, ()) = tokio::join!(
        db.locked_transaction(key, OPTIONS, async |tx| stores(tx, 1).await),
        async {
            world.becomes(key, (1, 1)).await;
            world.terminate(key, false).await;
        }
    );
    let Err(LockedError::Lock(error)) = &waited else {
        panic!("{waited:?}");
    };
    assert!(matches!(error, XactLockError::ConnectionLost { .. }), "{error:?}");
    holder.rollback().await.unwrap();

    // Told by the body, or by nobody.
    for swallows in [false, true] {
        let ended = db.locked_transaction(key, OPTIONS, async |tx| {
            stores(tx, 1).await?;
            world.terminate(key, true).await;
            match tx.execute_unprepared("SELECT 1").await {
                Err(_) if swallows => Ok(()),
                done => done.map(drop),
            }
        });
        let error = ended.await.unwrap_err();
        let is_right = match &error {
            LockedError::Body(_) => !swallows,
            // The connection does not say since when it has ended.
            LockedError::OutcomeUnknown(_) => swallows,
            _ => false,
        };
        assert!(is_right, "{error:?}");
    }
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
    assert_eq!(stored(&world).await, "");
}

/// A trigger that is deferred waits inside COMMIT, where the backend is killed.
#[tokio::test]
async fn a_backend_that_is_killed_in_its_commit_is_an_outcome_that_is_not_known() {
    let world = world().await;
    let blocks = "CREATE FUNCTION blocks() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_advisory_xact_lock(99); RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER blocks AFTER INSERT ON stored DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION blocks()";
    world.cluster.psql(blocks).unwrap();
    let db = world.database(2).await;
    let blocked = Key::bigint(99);
    let blocker = db.begin().await.unwrap();
    blocker.xact_lock(blocked).within(SOON).await.unwrap();
    let (ended, ()) = tokio::join!(
        db.locked_transaction(fresh_key(), OPTIONS, async |tx| stores(tx, 1).await),
        async {
            world.becomes(blocked, (1, 1)).await;
            world.terminate(blocked, false).await;
        }
    );
    let error = ended.unwrap_err();
    assert!(matches!(error, LockedError::OutcomeUnknown(_)), "{error:?}");
    drop(blocker);
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
}

/// The server has committed, and its answer never comes.
#[tokio::test]
async fn an_answer_that_is_lost_is_an_outcome_that_is_not_known() {
    let world = world().await;
    let proxy = Proxy::start(world.cluster.endpoint()).unwrap();
    let db: DatabaseConnection = pool(&proxy.url(), 1).await.into();
    let (ended, ()) = tokio::join!(
        db.locked_transaction(fresh_key(), OPTIONS, async |tx| {
            stores(tx, 1).await?;
            proxy.freeze_answers();
            Ok::<_, DbErr>(())
        }),
        async {
            support::eventually("it is stored", async || stored(&world).await == "1").await;
            proxy.cut();
        }
    );
    let error = ended.unwrap_err();
    assert!(matches!(error, LockedError::OutcomeUnknown(_)), "{error:?}");
}
