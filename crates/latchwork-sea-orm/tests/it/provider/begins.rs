//! Beginnings: with a lock or not at all, in time, and left by whoever asked.

use std::time::{Duration, Instant};

use latchwork_core::Mode;
use latchwork_harness::{Proxy, StopMode};
use latchwork_http::tx::{TxError, TxProvider as _, TxRequest};
use latchwork_sea_orm::{Key, SeaOrmTx, XactLockExt as _};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, TransactionTrait as _, sqlx::raw_sql};

use super::{KEY, begin, provider};
use crate::support::{self, Drop, MOMENT, SOON, World, polled, pool};

#[tokio::test]
async fn readers_share_and_the_isolation_is_read_committed_whatever_the_default_is() {
    let world = World::new().await;
    world
        .cluster
        .psql("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
        .unwrap();
    let provider = provider(&world, 4).await;
    let shared = || TxRequest::new(KEY).with_mode(Mode::Shared);
    let mut one = begin(&provider, shared()).await.unwrap();
    let other = begin(&provider, shared()).await.unwrap();
    assert!(begin(&provider, TxRequest::new(KEY)).await.is_none());
    assert!(begin(&provider, TxRequest::new(KEY).with_wait(MOMENT)).await.is_none());
    assert_eq!(world.seen(KEY).await, (2, 0));
    let level = "SELECT current_setting('transaction_isolation')";
    let row = SeaOrmTx::query(&mut one, level, &[]).await.unwrap().unwrap();
    assert_eq!(row[0].as_deref(), Some(&b"read committed"[..]));
    // Further locks on the same transaction.
    assert!(one.try_xact_lock(Key::pair(1, 2)).await.unwrap());
    assert!(!other.try_xact_lock(Key::pair(1, 2)).await.unwrap());
    SeaOrmTx::commit(one).await.unwrap();
    SeaOrmTx::rollback(other).await.unwrap();
    let alone = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    assert!(begin(&provider, shared()).await.is_none());
    SeaOrmTx::commit(alone).await.unwrap();
    world.comes_to_rest().await;
    assert_eq!(world.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn a_request_that_waits_gets_the_lock_when_it_comes_free() {
    let world = World::new().await;
    let provider = provider(&world, 2).await;
    let first = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    let (second, ()) = tokio::join!(begin(&provider, TxRequest::new(KEY).with_wait(SOON)), async {
        world.becomes(KEY, (1, 1)).await;
        SeaOrmTx::commit(first).await.unwrap();
    });
    assert_eq!(world.seen(KEY).await, (1, 0));
    SeaOrmTx::rollback(second.unwrap()).await.unwrap();
    assert_eq!(world.seen(KEY).await, (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_that_is_dropped_at_any_poll_leaves_nothing() {
    let world = World::new().await;
    let proxy = Proxy::start(world.cluster.endpoint()).unwrap();
    let db: DatabaseConnection = pool(&proxy.url(), 1).await.into();
    let provider = SeaOrmTx::from(db.clone());
    for drop_it in [Drop::AtOnce, Drop::WhenWoken, Drop::AtOnce, Drop::WhenWoken] {
        for times in 0.. {
            let begun = polled(provider.begin(TxRequest::new(KEY)), times, drop_it).await;
            let is_done = begun.is_some();
            drop(begun);
            world.comes_to_rest().await;
            support::assert_clean(&db).await;
            if is_done {
                break;
            }
        }
    }
    assert_eq!(world.complaints(), Vec::<String>::new());
}

/// By the layers' own word, in a task that nobody drops.
#[tokio::test]
async fn what_is_dropped_in_its_wait_stops_waiting() {
    let world = World::new().await;
    let provider = provider(&world, 2).await;
    let first = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    let waits = tokio::spawn({
        let provider = provider.clone();
        async move {
            provider
                .begin(TxRequest::new(KEY).with_wait(Duration::from_secs(3_600)))
                .await
        }
    });
    world.becomes(KEY, (1, 1)).await;
    waits.abort();
    world.becomes(KEY, (1, 0)).await;
    SeaOrmTx::commit(first).await.unwrap();
    world.comes_to_rest().await;
}

#[tokio::test]
async fn a_transaction_that_a_connection_comes_with_is_rolled_back_first() {
    let world = World::new().await;
    world.cluster.psql("CREATE TABLE leaked (n int)").unwrap();
    let db = world.database(1).await;
    let provider = SeaOrmTx::from(db.clone());
    for left in ["BEGIN; INSERT INTO leaked VALUES (1)", "BEGIN; SAVEPOINT a", "BEGIN"] {
        for aborted in [false, true] {
            let mut connection = db.get_postgres_connection_pool().acquire().await.unwrap();
            raw_sql(left).execute(&mut *connection).await.unwrap();
            if aborted {
                raw_sql("SELECT 1 / 0").execute(&mut *connection).await.unwrap_err();
            }
            drop(connection);
            let tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
            tx.execute_unprepared("SELECT 1").await.unwrap();
            SeaOrmTx::commit(tx).await.unwrap();
        }
    }
    assert_eq!(world.value("SELECT count(*) FROM leaked").await, "0");
}

#[tokio::test]
async fn a_database_that_is_not_there_or_has_no_connection_left_is_unavailable_in_time() {
    let world = World::new().await;
    let provider = provider(&world, 1).await;
    let request = || TxRequest::new(KEY).with_answer_within(MOMENT);
    let only = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    let begun = Instant::now();
    let error = provider.begin(request().with_wait(10 * SOON)).await.unwrap_err();
    assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
    assert!(begun.elapsed() < SOON);
    SeaOrmTx::commit(only).await.unwrap();
    // Whoever has left the queue gives up its turn.
    let tx = begin(&provider, TxRequest::new(KEY)).await.unwrap();
    SeaOrmTx::commit(tx).await.unwrap();
    world.comes_to_rest().await;
    world.cluster.stop(StopMode::Immediate).unwrap();
    let error = provider.begin(request()).await.unwrap_err();
    assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
}

#[tokio::test]
async fn a_server_that_falls_silent_is_unavailable_in_time() {
    let world = World::new().await;
    let proxy = Proxy::start(world.cluster.endpoint()).unwrap();
    let db: DatabaseConnection = pool(&proxy.url(), 1).await.into();
    let provider = SeaOrmTx::from(db.clone());
    let other = world.database(1).await;
    let holder = other.begin().await.unwrap();
    assert!(holder.try_xact_lock(KEY).await.unwrap());
    // In BEGIN, and in the wait.
    let request = TxRequest::new(KEY).with_wait(10 * SOON);
    for waits in [false, true] {
        if !waits {
            proxy.freeze();
        }
        let begun = Instant::now();
        let (ended, ()) = tokio::join!(provider.begin(request.clone()), async {
            if waits {
                world.becomes(KEY, (1, 1)).await;
                proxy.freeze();
            }
        });
        let error = ended.unwrap_err();
        assert!(matches!(error, TxError::Unavailable(_)), "{error:?}");
        assert!(begun.elapsed() < SOON);
        proxy.thaw();
        support::assert_clean(&db).await;
    }
}
