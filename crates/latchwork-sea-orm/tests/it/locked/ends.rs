//! What is called committed is committed, and what is not is not.

use std::time::Duration;

use latchwork_harness::http::in_time;
use latchwork_sea_orm::{LockedError, LockedTransactionExt as _, XactLockExt as _};
use sea_orm::{ConnectionTrait as _, DatabaseTransaction, DbErr, TransactionTrait as _};

use tokio::sync::oneshot;

use super::{OPTIONS, stored, stores, world};
use crate::support::{self, SOON, fresh_key};

#[tokio::test]
async fn a_failure_that_the_body_swallows_is_no_success() {
    let world = world().await;
    let db = world.database(1).await;
    let key = fresh_key();
    let swallowed = db.locked_transaction(key, OPTIONS, async |tx| {
        stores(tx, 1).await?;
        tx.execute_unprepared("SELECT 1 / 0").await.unwrap_err();
        Ok::<_, DbErr>(())
    });
    let error = swallowed.await.unwrap_err();
    assert!(matches!(error, LockedError::Aborted(_)), "{error:?}");
    // The lock is free as soon as it is told.
    assert_eq!((stored(&world).await, world.all_seen().await), (String::new(), (0, 0)));
    world.comes_to_rest().await;
    support::assert_clean(&db).await;
}

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

#[tokio::test]
async fn a_body_that_ends_the_transaction_itself_is_never_called_committed() {
    let world = world().await;
    let db = world.database(1).await;
    for ends in ["COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK AND CHAIN"] {
        let ended = db.locked_transaction(fresh_key(), OPTIONS, async |tx| {
            tx.execute_unprepared(ends).await.map(drop)
        });
        let error = ended.await.unwrap_err();
        assert!(matches!(error, LockedError::OutcomeUnknown(_)), "{ends}: {error:?}");
        world.comes_to_rest().await;
        support::assert_clean(&db).await;
    }
}

/// A statement that the body has dropped fails later. What it says is neither ours nor lost.
#[tokio::test]
async fn a_failure_that_nobody_has_waited_for_is_no_success() {
    let world = world().await;
    let db = world.database(1).await;
    for fails in [false, true] {
        let key = fresh_key();
        let late = if fails {
            "SELECT pg_sleep(0.05); SELECT 1 / 0"
        } else {
            "SELECT pg_sleep(0.05)"
        };
        let ended = db.locked_transaction(key, OPTIONS, async |tx| {
            stores(tx, i32::from(fails)).await?;
            let dropped = support::polled(tx.execute_unprepared(late), 1, support::Drop::AtOnce).await;
            assert!(dropped.is_none());
            Ok::<_, DbErr>(())
        });
        let ended = ended.await;
        assert_eq!(matches!(ended, Err(LockedError::Aborted(_))), fails, "{ended:?}");
        assert_eq!(world.all_seen().await, (0, 0));
        // And when the body fails, its lock goes all the same before that is told.
        let failed = db.locked_transaction(key, OPTIONS, async |tx| {
            let dropped = support::polled(tx.execute_unprepared(late), 1, support::Drop::AtOnce).await;
            assert!(dropped.is_none());
            Err::<(), _>(())
        });
        assert!(matches!(failed.await, Err(LockedError::Body(()))));
        assert_eq!(world.all_seen().await, (0, 0));
        world.comes_to_rest().await;
        support::assert_clean(&db).await;
    }
    assert_eq!(stored(&world).await, "0");
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
