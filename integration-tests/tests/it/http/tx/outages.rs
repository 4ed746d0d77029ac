//! A database that dies, and pools that are too small.

use std::time::{Duration, Instant};

use latchwork_harness::{Cluster, Proxy, Signal, StopMode, http::WAYS_TO_LEAVE};

use super::{Client, Event, Instance, Shop, TABLES, ask, is_problem, servers::Server, slow_commit};
use crate::{
    http::library::Library as _,
    onlooker::{Onlooker, eventually, within},
};

async fn a_backend_that_is_killed_during_the_handler_is_an_error_and_nothing_is_stored<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let client = Client::asks(shop.one.address, "POST /orders/1/lost", "connection: close\r\n").await;
    shop.one.sees(Event::Entered).await;
    shop.onlooker.terminate(shop.onlooker.holder().await).await;
    shop.is_clean().await;
    shop.one.lets_go(1);
    let answer = client.answer().await;
    if S::Library::NOTICES_LOSS {
        assert!(is_problem(&answer, 503, "transaction-lost"), "{answer:?}");
    } else {
        assert!(is_problem(&answer, 500, "transaction-unknown"), "{answer:?}");
    }
    assert_eq!(shop.charges().await, 0);
    shop.one.lets_go(1);
    assert_eq!(ask(shop.one.address, "POST /orders/1/charge").await.status(), 200);
    assert_eq!(shop.charges().await, 1);
    shop.close().await;
}

async fn a_backend_that_is_killed_during_commit_is_500_and_says_that_nobody_knows<S: Server>() {
    let shop = Shop::open::<S>().await;
    shop.onlooker.0.batch_execute(&slow_commit("charges")).await.unwrap();
    let client = Client::asks(shop.one.address, "POST /status/200", "connection: close\r\n").await;
    let commits = shop.onlooker.waiter().await;
    shop.onlooker.terminate(commits).await;
    let answer = client.answer().await;
    assert!(is_problem(&answer, 500, "transaction-unknown"), "{answer:?}");
    shop.onlooker.value("SELECT pg_advisory_unlock(7)").await;
    // A session that is ended says so a moment before it lets go of its locks.
    shop.is_clean().await;
    assert_eq!(ask(shop.one.address, "POST /status/200").await.status(), 200);
    assert_eq!(shop.charges().await, 1);
    shop.close().await;
}

async fn a_client_that_leaves_during_commit_does_not_stop_it<S: Server>() {
    let shop = Shop::with_pools_of::<S>(1).await;
    shop.onlooker.0.batch_execute(&slow_commit("charges")).await.unwrap();
    for how in WAYS_TO_LEAVE {
        let before = shop.charges().await;
        let client = Client::asks(shop.one.address, "POST /status/200", "").await;
        shop.onlooker.waiter().await;
        let _rest = client.leave(how).await;
        shop.onlooker.value("SELECT pg_advisory_unlock(7)").await;
        shop.is_clean().await;
        assert_eq!(shop.charges().await, before + 1, "{how:?}");
        shop.onlooker.value("SELECT pg_advisory_lock(7)").await;
    }
    shop.close().await;
}

async fn a_network_that_breaks_or_freezes_during_commit_is_500_and_says_that_nobody_knows<S: Server>() {
    for frozen in [false, true] {
        let cluster = Cluster::start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        onlooker.0.batch_execute(TABLES).await.unwrap();
        onlooker.0.batch_execute(&slow_commit("charges")).await.unwrap();
        let proxy = Proxy::start(cluster.endpoint()).unwrap();
        let mut instance = Instance::start::<S>(&proxy.url(), 4);
        // There is a connection for one who is in a hurry.
        assert_eq!(ask(instance.address, "POST /add").await.status(), 200);
        instance.lets_go(1);
        let client = Client::asks(instance.address, "POST /orders/1/hurried", "connection: close\r\n").await;
        instance.sees(Event::Entered).await;
        onlooker.waiter().await;
        if frozen {
            proxy.freeze();
        } else {
            proxy.cut();
        }
        let begun = Instant::now();
        let answer = client.answer().await;
        assert!(is_problem(&answer, 500, "transaction-unknown"), "{answer:?}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        proxy.thaw();
        onlooker.value("SELECT pg_advisory_unlock(7)").await;
        instance.lets_go(1);
        eventually("it works again", async || {
            ask(instance.address, "POST /orders/2/hurried").await.status() == 200
        })
        .await;
        instance.close().await;
    }
}

async fn a_server_that_stops_before_commit_is_500_in_time_and_ends_the_transaction_when_it_goes_on<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let client = Client::asks(shop.one.address, "POST /orders/1/hurried", "connection: close\r\n").await;
    shop.one.sees(Event::Entered).await;
    let backend = shop.onlooker.holder().await;
    shop.cluster.signal_backend(backend, Signal::STOP).unwrap();
    shop.one.lets_go(1);
    let begun = Instant::now();
    let answer = client.answer().await;
    assert!(is_problem(&answer, 500, "transaction-unknown"), "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    // Its lock is the server's to give up, so nobody else can be in.
    assert_eq!(ask(shop.other.address, "POST /orders/1/charge").await.status(), 409);
    shop.cluster.signal_backend(backend, Signal::CONT).unwrap();
    shop.is_clean().await;
    shop.other.lets_go(1);
    assert_eq!(ask(shop.other.address, "POST /orders/1/charge").await.status(), 200);
    shop.close().await;
}

async fn a_database_that_is_down_or_frozen_is_503_in_time_and_never_busy<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    assert_eq!(ask(shop.one.address, "POST /status/200").await.status(), 200);
    shop.cluster.stop(StopMode::Immediate).unwrap();
    for request in ["POST /status/200", "POST /add", "POST /orders/1/charge"] {
        for instance in [&shop.one, &shop.other] {
            let begun = Instant::now();
            let answer = ask(instance.address, request).await;
            assert!(is_problem(&answer, 503, "unavailable"), "{request} {answer:?}");
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        }
    }
    shop.cluster.restart(StopMode::Fast).unwrap();
    shop.onlooker = Onlooker::new(&shop.cluster.url()).await;
    for instance in [&shop.one, &shop.other] {
        within(Duration::from_secs(5), "it works again", async || {
            ask(instance.address, "POST /status/200").await.status() == 200
        })
        .await;
    }

    let proxy = Proxy::start(shop.cluster.endpoint()).unwrap();
    let instance = Instance::start::<S>(&proxy.url(), 2);
    // There is a connection for one who is in a hurry.
    assert_eq!(ask(instance.address, "POST /add").await.status(), 200);
    instance.lets_go(1);
    assert_eq!(ask(instance.address, "POST /orders/1/hurried").await.status(), 200);
    proxy.freeze();
    for _ in 0..3 {
        let begun = Instant::now();
        let answer = ask(instance.address, "POST /orders/1/hurried").await;
        assert!(is_problem(&answer, 503, "unavailable"), "{answer:?}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    proxy.thaw();
    instance.lets_go(1);
    within(Duration::from_secs(5), "it works again", async || {
        ask(instance.address, "POST /orders/1/hurried").await.status() == 200
    })
    .await;
    instance.close().await;
    shop.close().await;
}

async fn a_pool_of_one_serves_one_after_the_other<S: Server>() {
    let shop = Shop::with_pools_of::<S>(1).await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..30 {
        let address = [shop.one.address, shop.other.address][number % 2];
        asking.spawn(async move { ask(address, "POST /add").await.status() });
    }
    assert!(asking.join_all().await.iter().all(|status| *status == 200));
    assert_eq!(shop.onlooker.number("SELECT n FROM counter").await, 30);
    shop.close().await;
}

async fn a_pool_that_is_in_use_is_503_after_the_limit_and_not_busy<S: Server>() {
    let mut shop = Shop::with_pools_of::<S>(1).await;
    let first = Client::asks(shop.one.address, "POST /orders/1/charge", "connection: close\r\n").await;
    shop.one.sees(Event::Entered).await;
    let begun = Instant::now();
    // The same key: but nobody has asked the database for it.
    let answer = ask(shop.one.address, "POST /orders/1/hurried").await;
    assert!(is_problem(&answer, 503, "unavailable"), "{answer:?}");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    shop.one.lets_go(1);
    assert_eq!(first.answer().await.status(), 200);
    shop.close().await;
}

on_each_framework_and_library!(
    crate::http::tx::servers:
    a_backend_that_is_killed_during_the_handler_is_an_error_and_nothing_is_stored,
    a_backend_that_is_killed_during_commit_is_500_and_says_that_nobody_knows,
    a_client_that_leaves_during_commit_does_not_stop_it,
    a_network_that_breaks_or_freezes_during_commit_is_500_and_says_that_nobody_knows,
    a_server_that_stops_before_commit_is_500_in_time_and_ends_the_transaction_when_it_goes_on,
    a_database_that_is_down_or_frozen_is_503_in_time_and_never_busy,
    a_pool_of_one_serves_one_after_the_other,
    a_pool_that_is_in_use_is_503_after_the_limit_and_not_busy,
);
