//! What is called committed is committed, and what is not is not.

use std::time::Duration;

use latchwork_harness::{Proxy, http::in_time};
use latchwork_sea_orm::{LockedError, LockedTransactionExt as _, XactLockExt as _};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, DatabaseTransaction, DbErr, TransactionTrait as _};

use tokio::sync::oneshot;

use super::{OPTIONS, stored, stores, world};
use crate::support::{self, SOON, World, fresh_key, pool};

#[tokio::test]
async fn a_constraint_that_is_checked_at_the_commit_is_no_success_and_leaves_the_log_quiet() {
    let world = world().await;
    let db = world.database(1).await;
    let key = fresh_key();
    db.locked_transaction(key, OPTIONS, async |tx| stores(tx, 1).await)
        .await
        .unwrap();
    let refused = db
        .locked_transaction(key, OPTIONS, async |tx| stores(tx, 1).await)
        .await
        .unwrap_err();
    let LockedError::Aborted(cause) = refused else {
        panic!("{refused:?}");
    };
    assert!(cause.to_string().contains("stored_n_key"), "{cause}");
    assert_eq!((stored(&world).await, world.all_seen().await), ("1".to_owned(), (0, 0)));
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
    // The refusal itself, and no second complaint by what we do about it.
    assert_eq!(world.complaints().len(), 1, "{:?}", world.complaints());
}

/// A statement that the body has dropped fails later. What it says is neither ours nor lost.
#[tokio::test]
async fn a_failure_that_nobody_has_waited_for_is_no_success() {
    let world = world().await;
    let (proxy, db) = behind_proxy(&world).await;
    for (n, late) in ["SELECT 1", "SELECT 1 / 0"].into_iter().enumerate() {
        let key = fresh_key();
        let ended = db.locked_transaction(key, OPTIONS, async |tx| {
            tx.execute_unprepared(&format!("INSERT INTO stored VALUES ({n})"))
                .await?;
            unanswered(&proxy, tx.execute_unprepared(late)).await;
            Ok::<_, DbErr>(())
        });
        let ended = ended.await;
        assert_eq!(
            matches!(ended, Err(LockedError::Aborted(_))),
            late.contains('/'),
            "{ended:?}"
        );
        assert_eq!(world.all_seen().await, (0, 0));
        // And when the body fails, its lock goes all the same before that is told.
        let failed = db.locked_transaction(key, OPTIONS, async |tx| {
            unanswered(&proxy, tx.execute_unprepared(late)).await;
            Err::<(), _>(())
        });
        assert!(matches!(failed.await, Err(LockedError::Body(()))));
        assert_eq!(world.all_seen().await, (0, 0));
        world.comes_to_rest().await;
        support::assert_clean(&db).await;
    }
    assert_eq!(stored(&world).await, "0");
}

async fn behind_proxy(world: &World) -> (Proxy, DatabaseConnection) {
    let proxy = Proxy::start(world.cluster.endpoint()).unwrap();
    let pool = pool(&proxy.url(), 1).await;
    (proxy, pool.into())
}

/// Drops a future that has sent something, before there can be an answer.
async fn unanswered<F: Future>(proxy: &Proxy, future: F) {
    proxy.freeze_answers();
    let answered = support::polled(future, 1, support::Drop::AtOnce).await;
    assert!(answered.is_none());
    proxy.thaw();
}

#[tokio::test]
async fn nested_transactions_are_savepoints_of_the_body() {
    let world = world().await;
    let db = world.database(1).await;
    let done = db.locked_transaction(fresh_key(), OPTIONS, async |tx| {
        stores(tx, 1).await?;
        for (n, commits) in [(2, false), (3, true)] {
            let nested = tx.begin().await?;
            nested.xact_lock(fresh_key()).within(SOON).await.unwrap();
            stores(&nested, n).await?;
            if commits {
                nested.commit().await?;
            }
        }
        Ok::<_, DbErr>(())
    });
    done.await.unwrap();
    assert_eq!(stored(&world).await, "1,3");
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
    assert_eq!(world.complaints(), Vec::<String>::new());
}

/// SeaORM rolls all of it back then, and runs what follows by itself.
#[tokio::test]
async fn a_nested_begin_that_is_dropped_midway_is_never_called_committed() {
    let world = world().await;
    let (proxy, db) = behind_proxy(&world).await;
    let ended = db.locked_transaction(fresh_key(), OPTIONS, async |tx| {
        stores(tx, 1).await?;
        unanswered(&proxy, tx.begin()).await;
        stores(tx, 2).await
    });
    let error = ended.await.unwrap_err();
    assert!(matches!(error, LockedError::OutcomeUnknown(_)), "{error:?}");
    assert_eq!(stored(&world).await, "2");
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
}

/// SeaORM's own COMMIT would release a savepoint here, say that all is well, and roll everything back later.
#[tokio::test]
async fn a_nested_transaction_that_outlives_the_body_does_not_keep_it_from_its_end() {
    let world = world().await;
    let db = world.database(1).await;
    for commits in [true, false] {
        let ended = db.locked_transaction(fresh_key(), OPTIONS, async |tx| {
            stores(tx, i32::from(commits)).await.unwrap();
            let nested = tx.begin().await.unwrap();
            if commits { Ok(nested) } else { Err(nested) }
        });
        let nested: DatabaseTransaction = match ended.await {
            Ok(nested) => nested,
            Err(error) => error.into_body().unwrap(),
        };
        assert_eq!((stored(&world).await, world.all_seen().await), ("1".to_owned(), (0, 0)));
        // Nothing that it does later is stored.
        drop(stores(&nested, 5).await);
        drop(nested.commit().await);
        world.comes_to_rest().await;
        support::assert_clean(&db).await;
        assert_eq!(stored(&world).await, "1");
    }
}

/// Nor does one that is at work at that moment, whose end SeaORM's own would panic about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nested_transaction_that_is_at_work_does_not_change_what_is_told() {
    let world = world().await;
    let db = world.database(1).await;
    for n in 0..20 {
        let ended = db.locked_transaction(fresh_key(), OPTIONS, async |tx| {
            stores(tx, n).await?;
            let nested = tx.begin().await?;
            let (stop, mut stops) = oneshot::channel::<()>();
            let works = tokio::spawn(async move {
                while stops.try_recv().is_err() {
                    drop(nested.execute_unprepared("SELECT 1").await);
                    // SeaORM's lock on a connection is not fair.
                    tokio::time::sleep(Duration::from_micros(100)).await;
                }
            });
            Ok::<_, DbErr>((stop, works))
        });
        let (stop, works) = in_time(ended).await.unwrap();
        assert_eq!(world.value("SELECT max(n) FROM stored").await, n.to_string());
        stop.send(()).unwrap();
        works.await.unwrap();
        world.comes_to_rest().await;
        support::assert_clean(&db).await;
    }
}
