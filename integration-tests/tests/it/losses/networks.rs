//! A network that stops, and one that breaks.

use std::time::{Duration, Instant};

use latchwork_core::{Guard, HoldState, Locks};
use latchwork_harness::{Cluster, Proxy};
use latchwork_postgres::Postgres;

use super::{assert_lost, assert_lost_once, assert_works};
use crate::onlooker::{Onlooker, SOON, connect, eventually, quick, within};

const TRUST: Duration = Duration::from_millis(750);
const SILENCE: Duration = Duration::from_millis(2_250);
const SLACK: Duration = Duration::from_millis(500);

struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    postgres: Postgres,
    onlooker: Onlooker,
    locks: Locks,
}

impl Scene {
    async fn new() -> Self {
        let cluster = Cluster::builder().setting("log_statement", "all").start().unwrap();
        let proxy = Proxy::start(cluster.endpoint()).unwrap();
        let postgres = connect(&proxy.url(), quick()).await;
        let onlooker = Onlooker::new(&cluster.url()).await;
        let locks = postgres.locks();
        Self {
            cluster,
            proxy,
            postgres,
            onlooker,
            locks,
        }
    }

    async fn acquire(&self) -> Guard {
        self.locks.acquire("job").within(SOON).await.unwrap()
    }

    /// Freezes the network, and returns when the holder has stopped believing.
    async fn freeze(&self, guard: &Guard) {
        self.proxy.freeze();
        within(TRUST + SLACK, "it stops believing", async || !guard.is_held()).await;
        assert_eq!(guard.state(), HoldState::Suspended);
        assert_eq!(self.onlooker.held().await, 1, "long before the server lets go");
    }

    fn confirmations(&self) -> usize {
        self.cluster
            .log()
            .matches("mode = 'ShareLock' FROM pg_catalog.pg_locks")
            .count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_frozen_network_the_holder_stops_believing_before_the_server_lets_the_next_one_in() {
    let scene = Scene::new().await;
    let direct = connect(&scene.cluster.url(), quick()).await;
    let guard = scene.acquire().await;
    let begun = Instant::now();
    let next = tokio::spawn(direct.locks().acquire("job").within(SOON));
    scene.freeze(&guard).await;
    let next = next.await.unwrap().unwrap();
    let elapsed = begun.elapsed();
    assert!(next.is_held() && !guard.is_held());
    assert!(elapsed < SILENCE + SLACK * 3, "{elapsed:?}");
    // Nobody can tell the holder, but by now he knows himself.
    assert_lost_once(&scene.locks, vec![guard]).await;
    assert!(begun.elapsed() < SILENCE + SLACK * 3, "{:?}", begun.elapsed());
    next.release().await.unwrap();
    scene.proxy.thaw();
    assert_works(&scene.locks, &scene.onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_answered_without_the_server_neither_stand_for_an_answer_of_it_nor_keep_pings_away() {
    let scene = Scene::new().await;
    let locks = connect(&scene.proxy.url(), quick().with_max_locks(1)).await.locks();
    let guard = locks.acquire("job").within(SOON).await.unwrap();
    // There is no room for another lock, so the server is never asked for this one.
    let busy = tokio::spawn({
        let locks = locks.clone();
        async move {
            loop {
                assert!(locks.try_acquire("another").await.is_err());
                tokio::task::yield_now().await;
            }
        }
    });
    let begun = Instant::now();
    while begun.elapsed() < SILENCE + SLACK {
        assert!(guard.is_held(), "after {:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(locks.stats().lost, 0, "the server was pinged");
    scene.freeze(&guard).await;
    within(SILENCE + SLACK, "it is lost", async || guard.state() == HoldState::Lost).await;
    busy.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_thaws_in_time_gives_the_same_guard_back_once_the_server_has_confirmed_it() {
    let scene = Scene::new().await;
    let guard = scene.acquire().await;
    let session = scene.onlooker.holder().await;
    let confirmations = scene.confirmations();
    scene.freeze(&guard).await;
    let work = guard.run(tokio::time::sleep(SILENCE * 3));
    scene.proxy.thaw();
    eventually("it believes again", async || guard.is_held()).await;
    assert!(scene.confirmations() > confirmations, "and not without asking");
    assert_eq!(scene.onlooker.holder().await, session);
    work.await.expect("suspended work is not lost");
    assert_eq!(scene.locks.stats().lost, 0);
    guard.release().await.unwrap();
    assert_works(&scene.locks, &scene.onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_was_waited_for_is_suspended_given_back_and_lost_like_any_other() {
    let scene = Scene::new().await;
    let direct = connect(&scene.cluster.url(), quick()).await;
    for thaws_in_time in [true, false] {
        let theirs = direct.locks().acquire("job").within(SOON).await.unwrap();
        let waiting = tokio::spawn(scene.locks.acquire("job").within(SOON));
        scene.onlooker.waiter().await;
        theirs.release().await.unwrap();
        let guard = waiting.await.unwrap().unwrap();
        scene.freeze(&guard).await;
        if thaws_in_time {
            scene.proxy.thaw();
            eventually("it believes again", async || guard.is_held()).await;
            guard.release().await.unwrap();
        } else {
            assert_lost_once(&scene.locks, vec![guard]).await;
            eventually("the server lets go", async || scene.onlooker.held().await == 0).await;
            scene.proxy.thaw();
        }
    }
    assert_works(&scene.locks, &scene.onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_come_too_late_suspend_as_well() {
    let scene = Scene::new().await;
    let guard = scene.acquire().await;
    scene.proxy.freeze_answers();
    within(TRUST + SLACK, "it stops believing", async || !guard.is_held()).await;
    scene.proxy.thaw();
    eventually("it believes again", async || guard.is_held()).await;
    guard.release().await.unwrap();
    assert_works(&scene.locks, &scene.onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_thaws_after_the_session_was_ended_gives_nothing_back() {
    let scene = Scene::new().await;
    let guard = scene.acquire().await;
    scene.freeze(&guard).await;
    scene.onlooker.terminate(scene.onlooker.holder().await).await;
    let taken = connect(&scene.cluster.url(), quick()).await;
    let other = taken.locks().acquire("job").within(SOON).await.unwrap();
    scene.proxy.thaw();
    assert_lost_once(&scene.locks, vec![guard]).await;
    assert!(other.is_held());
    eventually("it can ask again", async || {
        scene.locks.try_acquire("job").await.is_ok_and(|guard| guard.is_none())
    })
    .await;
    other.release().await.unwrap();
    assert_works(&scene.locks, &scene.onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_thaws_late_finds_the_lock_lost_once() {
    let scene = Scene::new().await;
    let guard = scene.acquire().await;
    scene.freeze(&guard).await;
    eventually("the server lets go", async || scene.onlooker.held().await == 0).await;
    scene.proxy.thaw();
    assert_lost_once(&scene.locks, vec![guard]).await;
    let again = scene.acquire().await;
    again.release().await.unwrap();
    assert_works(&scene.locks, &scene.onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_during_a_freeze_is_answered_in_bounded_time_and_tells_the_truth() {
    let scene = Scene::new().await;
    for thaws in [true, false] {
        let guard = scene.acquire().await;
        scene.freeze(&guard).await;
        let begun = Instant::now();
        let released = tokio::spawn(guard.release());
        if thaws {
            scene.proxy.thaw();
            released.await.unwrap().unwrap();
        } else {
            released.await.unwrap().unwrap_err();
            assert!(begun.elapsed() < SILENCE + SLACK * 2, "{:?}", begun.elapsed());
            scene.proxy.thaw();
        }
        eventually("it is free", async || scene.onlooker.held().await == 0).await;
        assert_works(&scene.locks, &scene.onlooker).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_is_a_loss_at_once_and_the_wait_behind_it_goes_on() {
    let scene = Scene::new().await;
    for _ in 0..3 {
        let guard = scene.acquire().await;
        let begun = Instant::now();
        let behind = tokio::spawn(scene.locks.acquire("job").within(SOON));
        scene.proxy.cut();
        assert_lost(guard).await;
        assert!(begun.elapsed() < TRUST, "{:?}", begun.elapsed());
        behind.await.unwrap().unwrap().release().await.unwrap();
        assert_works(&scene.locks, &scene.onlooker).await;
    }
    scene.postgres.locks().close().await;
}
