//! A database that dies, and pools that are too small.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use latchwork_harness::{
    Proxy, StopMode,
    http::{Client, Event},
};

use super::{Instance, Shop, answered, asks, is_problem, post, send, servers::Server};
use crate::{
    http::tx::slow_commit,
    onlooker::{Onlooker, eventually, quick},
};

async fn the_servers_end_of_the_session_takes_the_claim_along<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let client = asks(shop.one.address, "/slow", "idempotency-key: k\r\n", "").await;
    shop.one.sees(Event::Entered).await;
    shop.cluster
        .psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
        .unwrap();
    // The server is only told to end it by then.
    let onlooker = &shop.onlooker;
    eventually("the session has ended", async || onlooker.held().await == 0).await;
    shop.other.lets_go(1);
    let again = send(shop.other.address, "/slow", "idempotency-key: k\r\n", "").await;
    assert_eq!((again.status(), again.header("idempotent-replayed")), (200, None));
    shop.one.lets_go(1);
    let first = client.answer().await;
    assert!(matches!(first.status(), 500 | 503), "{first:?}");
    assert_eq!((shop.payments().await, shop.records().await), (1, 1));
    shop.close().await;
}

async fn without_the_table_requests_are_refused_in_time_and_nothing_else_is<S: Server>() {
    let shop = Shop::open::<S>().await;
    shop.cluster.psql("DROP TABLE latchwork.idempotency").unwrap();
    is_problem(&post(shop.one.address, "/payments", "k", "").await, 500, "setup");
    let free = Client::asks(shop.one.address, "GET /free", "connection: close\r\n").await;
    assert_eq!(free.answer().await.status(), 200);
    shop.close().await;
}

async fn a_backend_that_is_killed_during_commit_is_500_and_who_asks_again_is_served_once<S: Server>() {
    let shop = Shop::open::<S>().await;
    shop.onlooker.0.batch_execute(&slow_commit("payments")).await.unwrap();
    let client = asks(
        shop.one.address,
        "/payments",
        "idempotency-key: k\r\nx-user: ann\r\n",
        "",
    )
    .await;
    let commits = shop.onlooker.waiter().await;
    shop.onlooker.terminate(commits).await;
    is_problem(&client.answer().await, 500, "transaction-unknown");
    shop.onlooker.value("SELECT pg_advisory_unlock(7)").await;
    shop.is_clean().await;
    for replayed in [None, Some("true")] {
        let again = post(shop.other.address, "/payments", "k", "").await;
        assert_eq!((again.status(), again.header("idempotent-replayed")), (201, replayed));
    }
    assert_eq!((shop.payments().await, shop.records().await), (1, 1));
    shop.close().await;
}

async fn a_commit_whose_answer_is_lost_is_500_and_who_asks_again_is_given_its_response<S: Server>() {
    let shop = Shop::open::<S>().await;
    shop.onlooker.0.batch_execute(&slow_commit("payments")).await.unwrap();
    let proxy = Proxy::start(shop.cluster.endpoint()).unwrap();
    let instance = Instance::start::<S>(&proxy.url(), quick(), 1).await;
    let client = asks(
        instance.address,
        "/payments",
        "idempotency-key: k\r\nx-user: ann\r\n",
        "",
    )
    .await;
    shop.onlooker.waiter().await;
    proxy.freeze_answers();
    shop.onlooker.value("SELECT pg_advisory_unlock(7)").await;
    let onlooker = &shop.onlooker;
    let records = "SELECT count(*) FROM latchwork.idempotency";
    eventually("it is stored", async || onlooker.number(records).await == 1).await;
    is_problem(&client.answer().await, 500, "transaction-unknown");
    let again = post(shop.other.address, "/payments", "k", "").await;
    assert_eq!(
        (again.status(), again.header("idempotent-replayed")),
        (201, Some("true"))
    );
    assert_eq!(shop.payments().await, 1);
    proxy.thaw();
    instance.close().await;
    shop.close().await;
}

async fn a_database_that_is_down_is_503_in_time_and_what_it_has_kept_is_there_afterwards<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    assert_eq!(post(shop.one.address, "/payments", "k", "").await.status(), 201);
    let client = asks(shop.one.address, "/slow", "idempotency-key: k\r\nx-user: ann\r\n", "").await;
    shop.one.sees(Event::Entered).await;
    shop.cluster.stop(StopMode::Immediate).unwrap();
    shop.one.lets_go(1);
    let first = client.answer().await;
    assert!(matches!(first.status(), 500 | 503), "{first:?}");
    for (path, key) in [
        ("/payments", "k"),
        ("/payments", "new"),
        ("/slow", "k"),
        ("/mails", "k"),
    ] {
        for instance in [&shop.one, &shop.other] {
            let begun = Instant::now();
            let answer = post(instance.address, path, key, "").await;
            is_problem(&answer, 503, "unavailable");
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert!(begun.elapsed() < Duration::from_secs(8), "{path} {:?}", begun.elapsed());
        }
    }
    shop.cluster.restart(StopMode::Fast).unwrap();
    shop.onlooker = Onlooker::new(&shop.cluster.url()).await;
    for instance in [&shop.one, &shop.other] {
        eventually("what was kept is replayed", async || {
            let again = post(instance.address, "/payments", "k", "").await;
            again.status() == 201 && again.header("idempotent-replayed") == Some("true")
        })
        .await;
    }
    // The one that was cut off can be asked for again.
    shop.other.lets_go(1);
    let again = post(shop.other.address, "/slow", "k", "").await;
    assert_eq!((again.status(), again.header("idempotent-replayed")), (200, None));
    assert_eq!((shop.payments().await, shop.records().await), (2, 2));
    shop.close().await;
}

async fn a_network_that_freezes_is_503_in_time_and_claims_nothing<S: Server>() {
    let shop = Shop::open::<S>().await;
    let proxy = Proxy::start(shop.cluster.endpoint()).unwrap();
    let instance = Instance::start::<S>(&proxy.url(), quick(), 1).await;
    assert_eq!(post(instance.address, "/payments", "k", "").await.status(), 201);
    proxy.freeze();
    for key in ["k", "new"] {
        let begun = Instant::now();
        is_problem(&post(instance.address, "/payments", key, "").await, 503, "unavailable");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
    proxy.thaw();
    eventually("it works again", async || {
        post(instance.address, "/payments", "new", "").await.status() == 201
    })
    .await;
    let again = answered(&shop, "/payments", "new", "").await;
    assert_eq!(
        (again.status(), again.header("idempotent-replayed")),
        (201, Some("true"))
    );
    assert_eq!((shop.payments().await, shop.records().await), (2, 2));
    instance.close().await;
    shop.close().await;
}

async fn a_pool_of_one_serves_one_after_the_other<S: Server>() {
    let shop = Shop::with_pools_of::<S>(1).await;
    let servers = [shop.one.address, shop.other.address];
    let keys: Vec<_> = (0..30).map(|key| (servers[key % 2], key.to_string())).collect();
    let asked = keys.iter().map(|(server, key)| post(*server, "/payments", key, "x"));
    for answer in join_all(asked).await {
        assert_eq!((answer.status(), answer.header("idempotent-replayed")), (201, None));
    }
    let asked = keys.iter().map(|(server, key)| post(*server, "/payments", key, "x"));
    for answer in join_all(asked).await {
        assert_eq!(
            (answer.status(), answer.header("idempotent-replayed")),
            (201, Some("true"))
        );
    }
    assert_eq!((shop.payments().await, shop.records().await), (30, 30));
    shop.close().await;
}

on_each_framework!(
    crate::http::idempotency::servers:
    the_servers_end_of_the_session_takes_the_claim_along,
    without_the_table_requests_are_refused_in_time_and_nothing_else_is,
    a_backend_that_is_killed_during_commit_is_500_and_who_asks_again_is_served_once,
    a_commit_whose_answer_is_lost_is_500_and_who_asks_again_is_given_its_response,
    a_database_that_is_down_is_503_in_time_and_what_it_has_kept_is_there_afterwards,
    a_network_that_freezes_is_503_in_time_and_claims_nothing,
    a_pool_of_one_serves_one_after_the_other,
);
