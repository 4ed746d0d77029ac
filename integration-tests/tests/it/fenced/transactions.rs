//! What a transaction proves, and what ends it.

use latchwork_core::{
    Key, Mode,
    fence::Fence,
    xact::{FencedLimits, XactLockError},
};
use latchwork_harness::{Cluster, PgBouncer, PoolMode};
use latchwork_postgres::transaction::XactLockExt as _;
use tokio_postgres::IsolationLevel;

use super::{MOMENT, client, fenced, proved};
use crate::onlooker::{SOON, assert_quiet, connect, eventually, majors, quick};

const KEY: Key = Key::bigint(42);

#[tokio::test]
async fn only_a_grant_that_is_in_force_is_proved_on_every_major() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let locks = connect(&cluster.url(), quick()).await.locks();
        let mut works = client(&cluster.url()).await;
        for mode in [Mode::Exclusive, Mode::Shared] {
            let acquire = locks.acquire_fenced(KEY);
            let acquire = if mode == Mode::Shared {
                acquire.shared()
            } else {
                acquire
            };
            let guard = acquire.within(SOON).await.unwrap();
            let fence: Fence = guard.fence().to_string().parse().unwrap();
            proved(&mut works, &fence).await.unwrap().commit().await.unwrap();
            let other_mode = match mode {
                Mode::Exclusive => Mode::Shared,
                Mode::Shared => Mode::Exclusive,
            };
            for forged in [
                Fence::fresh(KEY, mode),
                Fence::new(KEY, other_mode, fence.grant_key()),
                Fence::new(Key::bigint(43), mode, fence.grant_key()),
            ] {
                let refused = proved(&mut works, &forged).await.err().unwrap();
                assert!(matches!(refused, XactLockError::Superseded { .. }), "{refused:?}");
            }
            guard.release().await.unwrap();
            let refused = proved(&mut works, &fence).await.err().unwrap();
            assert!(
                matches!(refused, XactLockError::Superseded { key } if key == KEY),
                "{refused:?}"
            );
            // The next grant rests on the same session.
            let next = fenced(&locks, KEY).await;
            assert!(proved(&mut works, &fence).await.is_err());
            proved(&mut works, &next.fence()).await.unwrap().commit().await.unwrap();
            next.release().await.unwrap();
        }
        locks.close().await;
        assert_quiet(&cluster);
    }
}

#[tokio::test]
async fn a_snapshot_that_is_older_than_the_proof_is_refused() {
    let cluster = Cluster::start().unwrap();
    let locks = connect(&cluster.url(), quick()).await.locks();
    let guard = fenced(&locks, KEY).await;
    let mut works = client(&cluster.url()).await;
    let transaction = works
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead);
    let transaction = transaction.start().await.unwrap();
    let refused = transaction.prove_fence(&guard.fence(), FencedLimits::default());
    let refused = refused.within(SOON).await.unwrap_err();
    assert!(matches!(refused, XactLockError::StaleSnapshot { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_transaction_that_is_paused_does_not_keep_the_next_holder_waiting_for_ever() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let has_limit = installation.major() >= 17;
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let locks = connect(&cluster.url(), quick()).await.locks();
        let mut works = client(&cluster.url()).await;
        let guard = fenced(&locks, KEY).await;
        let transaction = works.transaction().await.unwrap();
        let limits = FencedLimits::default().with_idle(MOMENT);
        transaction
            .prove_fence(&guard.fence(), limits)
            .within(SOON)
            .await
            .unwrap();
        drop(guard);
        // Nobody speaks on the connection any more.
        let next = fenced(&locks, KEY).await;
        transaction.commit().await.unwrap_err();

        if has_limit {
            let mut works = client(&cluster.url()).await;
            let transaction = works.transaction().await.unwrap();
            let limits = FencedLimits::default().with_transaction(MOMENT);
            transaction
                .prove_fence(&next.fence(), limits)
                .within(SOON)
                .await
                .unwrap();
            let ended = transaction.batch_execute("SELECT pg_sleep(60)").await.unwrap_err();
            assert_eq!(ended.code().unwrap().code(), "25P04", "{ended}");
        }
        drop(next);
    }
}

#[tokio::test]
async fn a_proof_waits_for_a_grant_that_is_being_made_and_finds_it_was_for_nothing() {
    let cluster = Cluster::start().unwrap();
    let locks = connect(&cluster.url(), quick()).await.locks();
    let guard = fenced(&locks, KEY).await;
    let old = guard.fence();
    let mut drains = client(&cluster.url()).await;
    let mut works = client(&cluster.url()).await;
    let drain = drains.transaction().await.unwrap();
    let key = Fence::transactions_key(KEY, Mode::Exclusive);
    drain.xact_lock(key).within(SOON).await.unwrap();
    let transaction = works.transaction().await.unwrap();
    let limits = FencedLimits::default();
    let out_of_time = transaction.prove_fence(&old, limits).within(MOMENT).await.unwrap_err();
    assert!(out_of_time.is_timeout(), "{out_of_time:?}");
    guard.release().await.unwrap();
    let (refused, ()) = tokio::join!(transaction.prove_fence(&old, limits).within(SOON), async {
        eventually("it waits", async || {
            cluster.psql("SELECT count(*) FROM pg_locks WHERE NOT granted").unwrap() == "1"
        })
        .await;
        drain.commit().await.unwrap();
    });
    let refused = refused.unwrap_err();
    assert!(matches!(refused, XactLockError::Superseded { .. }), "{refused:?}");
}

#[tokio::test]
async fn it_works_through_a_pooler_in_transaction_mode() {
    let cluster = Cluster::start().unwrap();
    let pooler = PgBouncer::builder(&cluster, PoolMode::Transaction).start().unwrap();
    let locks = connect(&cluster.url(), quick()).await.locks();
    let guard = fenced(&locks, KEY).await;
    let mut works = client(&pooler.url()).await;
    for _ in 0..5 {
        let transaction = proved(&mut works, &guard.fence()).await.unwrap();
        transaction.batch_execute("SELECT 1").await.unwrap();
        transaction.commit().await.unwrap();
    }
    let old = guard.fence();
    guard.release().await.unwrap();
    assert!(proved(&mut works, &old).await.is_err());
    let idle = cluster.psql("SHOW idle_in_transaction_session_timeout").unwrap();
    assert_eq!(idle, "0", "nothing of it stays on a pooled session");
}
