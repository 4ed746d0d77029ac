//! What a grant waits for, what it holds, and how it ends.

use std::time::Instant;

use latchwork_core::{AcquireError, HoldState, Key, ReleaseError, fence::Fence};
use latchwork_harness::Cluster;
use latchwork_postgres::PostgresOptions;

use super::{MOMENT, client, fenced, proved};
use crate::onlooker::{Onlooker, SOON, assert_quiet, chain, connect, eventually, majors, quick};

const KEY: Key = Key::bigint(42);

/// How many sessions hold both the lock and the grant's own key.
async fn in_force(onlooker: &Onlooker, fence: Fence) -> bool {
    onlooker.sees_held(fence.key()).await && onlooker.sees_held(fence.grant_key()).await
}

#[tokio::test]
async fn a_grant_holds_its_own_key_beside_the_lock_on_every_major_and_its_term_grows() {
    for installation in majors() {
        println!("PostgreSQL {}", installation.version());
        let cluster = Cluster::builder().installation(installation).start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        let locks = connect(&cluster.url(), quick()).await.locks();
        let mut last = None;
        for key in [KEY, KEY, Key::pair(1, 2)] {
            let guard = fenced(&locks, key).await;
            assert!(guard.is_held() && in_force(&onlooker, guard.fence()).await);
            assert_eq!(onlooker.held().await, 2);
            assert!(last < Some(guard.term()), "{last:?} {guard:?}");
            last = Some(guard.term());
            guard.release().await.unwrap();
            assert_eq!(onlooker.held().await, 0);
        }
        let (one, two) = (
            locks.acquire_fenced(KEY).shared().within(SOON).await.unwrap(),
            locks.acquire_fenced(KEY).shared().within(SOON).await.unwrap(),
        );
        assert!(in_force(&onlooker, one.fence()).await && in_force(&onlooker, two.fence()).await);
        assert!(locks.try_acquire(KEY).await.unwrap().is_none());
        drop((one, two));
        drop(fenced(&locks, KEY).await);
        eventually("nothing is held", async || onlooker.held().await == 0).await;
        locks.close().await;
        assert_quiet(&cluster);
    }
}

#[tokio::test]
async fn a_grant_is_handed_out_only_on_a_session_of_some_age() {
    let cluster = Cluster::start().unwrap();
    let options = quick();
    let age = options.timing.trust();
    let locks = connect(&cluster.url(), options).await.locks();
    let begun = Instant::now();
    let first = fenced(&locks, KEY).await;
    assert!(begun.elapsed() >= age, "{:?}", begun.elapsed());
    let too_short = locks.acquire_fenced(Key::bigint(1)).within(age / 4).await.unwrap_err();
    assert!(matches!(too_short, AcquireError::NotReady { .. }), "{too_short:?}");
    assert!(!too_short.is_timeout() && too_short.is_retryable());
    first.release().await.unwrap();
    // The session is old enough by now.
    locks
        .acquire_fenced(KEY)
        .within(age)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_grant_waits_for_the_transactions_of_the_last_holder_and_its_limit_covers_that() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    let mut works = client(&cluster.url()).await;
    let first = fenced(&locks, KEY).await;
    let transaction = proved(&mut works, &first.fence()).await.unwrap();
    first.release().await.unwrap();

    let refused = locks.acquire_fenced(KEY).within(MOMENT).await.unwrap_err();
    assert!(refused.is_timeout(), "{refused:?}");
    // What was taken on the way is free again.
    eventually("the lock is free", async || !onlooker.sees_held(KEY).await).await;
    let readers = locks.acquire_fenced(KEY).shared().within(MOMENT).await.unwrap_err();
    assert!(readers.is_timeout(), "{readers:?}");

    let next = tokio::spawn({
        let locks = locks.clone();
        async move { fenced(&locks, KEY).await }
    });
    let waits = Fence::transactions_key(KEY, latchwork_core::Mode::Exclusive);
    eventually("the next one waits for the transaction", async || {
        let (classid, objid) = (waits.classid(), waits.objid());
        let waits = format!(
            "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
             AND classid = {classid} AND objid = {objid})"
        );
        onlooker.is(&waits).await
    })
    .await;
    assert!(!next.is_finished());
    transaction.commit().await.unwrap();
    assert!(next.await.unwrap().is_held());
}

#[tokio::test]
async fn readers_do_not_wait_for_the_transactions_of_readers() {
    let cluster = Cluster::start().unwrap();
    let locks = connect(&cluster.url(), quick()).await.locks();
    let mut works = client(&cluster.url()).await;
    let one = locks.acquire_fenced(KEY).shared().within(SOON).await.unwrap();
    let transaction = proved(&mut works, &one.fence()).await.unwrap();
    let two = locks.acquire_fenced(KEY).shared().within(SOON).await.unwrap();
    drop((one, two));
    let writer = locks.acquire_fenced(KEY).within(MOMENT).await.unwrap_err();
    assert!(writer.is_timeout(), "{writer:?}");
    transaction.commit().await.unwrap();
    fenced(&locks, KEY).await.release().await.unwrap();
}

#[tokio::test]
async fn dropped_at_any_moment_nothing_stays_held_and_nothing_keeps_waiting() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    drop(fenced(&locks, KEY).await);
    for polls in 0..60 {
        let mut acquire = Box::pin(locks.acquire_fenced(KEY).within(SOON));
        let mut polled = 0;
        let granted = std::future::poll_fn(|context| {
            polled += 1;
            match acquire.as_mut().poll(context) {
                std::task::Poll::Ready(granted) => std::task::Poll::Ready(Some(granted)),
                std::task::Poll::Pending if polled > polls % 6 => std::task::Poll::Ready(None),
                std::task::Poll::Pending => {
                    context.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
            }
        })
        .await;
        drop((acquire, granted));
        eventually("nothing is held or waited for", async || {
            onlooker.held().await + onlooker.queued().await == 0
        })
        .await;
    }
    locks.close().await;
}

#[tokio::test]
async fn a_killed_session_is_a_loss_and_the_next_grant_is_another_one() {
    let cluster = Cluster::start().unwrap();
    let onlooker = Onlooker::new(&cluster.url()).await;
    let locks = connect(&cluster.url(), quick()).await.locks();
    let guard = fenced(&locks, KEY).await;
    let pid = onlooker
        .number(&format!(
            "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = {} AND classid = {}",
            KEY.objid(),
            KEY.classid()
        ))
        .await;
    cluster.psql(&format!("SELECT pg_terminate_backend({pid})")).unwrap();
    tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert_eq!(guard.state(), HoldState::Lost);
    let next = fenced(&locks, KEY).await;
    assert!(next.term() > guard.term() && next.fence() != guard.fence());
    let lost = guard.release().await.unwrap_err();
    assert!(matches!(lost, ReleaseError::Lost { .. }), "{lost:?}");
    assert!(next.is_held());
}

#[tokio::test]
async fn there_are_as_many_sessions_as_was_said_and_closing_ends_those_that_wait() {
    let cluster = Cluster::start().unwrap();
    let options: PostgresOptions = quick().with_fenced_sessions(2);
    let locks = connect(&cluster.url(), options).await.locks();
    let held = fenced(&locks, KEY).await;
    let waits = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire_fenced(KEY).without_limit().await }
    });
    let onlooker = Onlooker::new(&cluster.url()).await;
    eventually("it waits", async || onlooker.queued().await == 1).await;
    let refused = locks.acquire_fenced(Key::bigint(1)).within(SOON).await.unwrap_err();
    assert!(matches!(refused, AcquireError::CapacityExceeded { .. }), "{refused:?}");
    assert!(chain(&refused).contains("fenced_sessions"), "{}", chain(&refused));

    let closes = tokio::spawn({
        let locks = locks.clone();
        async move { locks.close().await }
    });
    held.release().await.unwrap();
    closes.await.unwrap();
    let closed = waits.await.unwrap();
    // It may have been granted in between.
    assert!(matches!(closed, Err(AcquireError::Closed) | Ok(_)), "{closed:?}");
    assert_eq!(onlooker.held().await, 0);
}
