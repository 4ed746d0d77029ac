//! What every framework's users may count on, over real sockets and with a PostgreSQL that can fail.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use latchwork_harness::{
    Proxy, StopMode,
    http::{Client, Event, Leave, ask},
};

use super::{
    instance::Instance,
    servers::{SLOTS, Server},
    shop::Shop,
};
use crate::onlooker::{eventually, quick};

async fn one_request_an_order_at_a_time_over_two_instances<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let first = Client::asks(shop.one.address, "POST /orders/42/charge", "connection: close\r\n").await;
    shop.one.sees(Event::Entered).await;
    for instance in [&shop.one, &shop.other] {
        let refused = ask(instance.address, "POST /orders/42/charge").await;
        assert_eq!(refused.status(), 409);
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    }
    assert_eq!(shop.onlooker.held().await, 1);
    shop.other.lets_go(2);
    assert_eq!(ask(shop.other.address, "POST /orders/7/charge").await.status(), 200);
    shop.one.lets_go(1);
    assert_eq!(first.answer().await.status(), 200);
    // The release follows the answer, with the next statement.
    let onlooker = &shop.onlooker;
    eventually("the lock is given up", async || onlooker.held().await == 0).await;
    assert_eq!(ask(shop.other.address, "POST /orders/42/charge").await.status(), 200);
    shop.close().await;
}

async fn those_who_wait_get_their_turn_over_two_instances<S: Server>() {
    let shop = Shop::open::<S>().await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..40 {
        let address = [shop.one.address, shop.other.address][number % 2];
        asking.spawn(async move { ask(address, "POST /patient").await.status() });
    }
    for status in asking.join_all().await {
        // The handler answers 500 to one who is not alone.
        assert_eq!(status, 200);
    }
    shop.close().await;
}

async fn never_more_than_n_slots_over_two_instances_while_bodies_stream<S: Server>() {
    let shop = Shop::open::<S>().await;
    let mut inside = Vec::new();
    for number in 0..SLOTS as usize {
        let address = [shop.one.address, shop.other.address][number % 2];
        let mut client = Client::asks(address, "GET /stream", "").await;
        let head = client.reads_until("\r\n\r\n").await;
        inside.push((head, client));
    }
    // The body goes on, so the slot is kept.
    for instance in [&shop.one, &shop.other] {
        let refused = ask(instance.address, "GET /stream").await;
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    let mut slots: Vec<_> = inside
        .iter()
        .map(|(head, _)| head.split("x-slot: ").nth(1).unwrap()[..1].to_owned())
        .collect();
    slots.sort();
    assert_eq!(slots, ["0", "1", "2"]);
    // Whoever leaves midway makes room for the other instance.
    let (_, leaves) = inside.remove(0);
    assert!(leaves.leave(Leave::Rst).await.is_none());
    let other = shop.other.address;
    eventually("there is room", async || {
        let mut client = Client::asks(other, "GET /stream", "").await;
        client.reads_until("\r\n\r\n").await.starts_with("HTTP/1.1 200")
    })
    .await;
    drop(inside);
    shop.close().await;
}

async fn a_killed_backend_cancels_its_handlers_and_frees_their_locks<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let client = Client::asks(shop.one.address, "POST /orders/42/charge", "connection: close\r\n").await;
    shop.one.sees(Event::Entered).await;
    shop.onlooker.terminate(shop.onlooker.holder().await).await;
    shop.one.sees(Event::Dropped).await;
    let answer = client.answer().await;
    assert_eq!(answer.status(), 503);
    assert!(answer.0.contains("urn:latchwork:problem:lock-lost"), "{answer:?}");
    // A session that is ended says so a moment before it lets go of its locks.
    let onlooker = &shop.onlooker;
    eventually("the server has freed the lock", async || onlooker.held().await == 0).await;
    shop.other.lets_go(1);
    assert_eq!(ask(shop.other.address, "POST /orders/42/charge").await.status(), 200);
    // The instance that lost its session opens another.
    shop.one.lets_go(1);
    let one = shop.one.address;
    eventually("it works again", async || {
        ask(one, "POST /orders/42/charge").await.status() == 200
    })
    .await;
    shop.one.close().await;
    shop.other.close().await;
}

async fn a_database_that_is_down_is_503_and_never_busy<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let client = Client::asks(shop.one.address, "POST /orders/42/charge", "connection: close\r\n").await;
    shop.one.sees(Event::Entered).await;
    shop.cluster.stop(StopMode::Immediate).unwrap();
    assert_eq!(client.answer().await.status(), 503);
    for request in [
        "POST /orders/42/charge",
        "POST /orders/7/charge",
        "POST /complete",
        "GET /stream",
    ] {
        for instance in [&shop.one, &shop.other] {
            let begun = Instant::now();
            let answer = ask(instance.address, request).await;
            assert_eq!(answer.status(), 503, "{request}");
            assert!(
                answer.0.contains("urn:latchwork:problem:unavailable"),
                "{request} {answer:?}"
            );
            assert!(
                begun.elapsed() < Duration::from_secs(8),
                "{request} {:?}",
                begun.elapsed()
            );
        }
    }
    shop.cluster.restart(StopMode::Fast).unwrap();
    shop.one.lets_go(100);
    let one = shop.one.address;
    eventually("it works again", async || {
        ask(one, "POST /orders/42/charge").await.status() == 200
    })
    .await;
    shop.one.close().await;
    shop.other.close().await;
}

async fn a_network_that_freezes_cancels_the_handler_and_is_503_in_time<S: Server>() {
    let shop = Shop::open::<S>().await;
    let proxy = Proxy::start(shop.cluster.endpoint()).unwrap();
    let mut frozen = Instance::start::<S>(&proxy.url(), quick(), &Arc::default()).await;
    let client = Client::asks(frozen.address, "POST /orders/42/charge", "connection: close\r\n").await;
    frozen.sees(Event::Entered).await;
    proxy.freeze();
    frozen.sees(Event::Dropped).await;
    let answer = client.answer().await;
    assert_eq!(answer.status(), 503);
    assert!(answer.0.contains("urn:latchwork:problem:lock-lost"), "{answer:?}");
    for request in ["POST /orders/42/charge", "POST /orders/7/charge", "GET /stream"] {
        let begun = Instant::now();
        let answer = ask(frozen.address, request).await;
        assert_eq!(answer.status(), 503, "{request}");
        assert!(
            answer.0.contains("urn:latchwork:problem:unavailable"),
            "{request} {answer:?}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "{request} {:?}",
            begun.elapsed()
        );
    }
    // The server ends the silent session, so that others get in.
    shop.other.lets_go(1);
    let other = shop.other.address;
    eventually("the other instance has the lock", async || {
        ask(other, "POST /orders/42/charge").await.status() == 200
    })
    .await;
    proxy.thaw();
    frozen.lets_go(1);
    eventually("it works again", async || {
        ask(frozen.address, "POST /orders/42/charge").await.status() == 200
    })
    .await;
    frozen.close().await;
    shop.one.close().await;
    shop.other.close().await;
}

/// One state stands behind all clones of a layer or middleware, over workers and connections.
async fn of_1500_at_once_over_two_instances_as_many_get_in_as_there_are_slots<S: Server>() {
    let shop = Shop::open_to_crowds::<S>().await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..1500 {
        let address = [shop.one.address, shop.other.address][number % 2];
        asking.spawn(async move { ask(address, "GET /crowd").await.status() });
    }
    // Those who are in stay in until all others have been answered.
    for _ in SLOTS..1500 {
        assert_eq!(asking.join_next().await.unwrap().unwrap(), 503);
    }
    shop.one.lets_go(SLOTS as usize);
    shop.other.lets_go(SLOTS as usize);
    assert_eq!(asking.join_all().await, [200; SLOTS as usize]);
    shop.close().await;
}

async fn a_handler_that_panics_frees_its_lock_and_its_slot<S: Server>() {
    let shop = Shop::open::<S>().await;
    // More often than there are slots.
    for _ in 0..=SLOTS {
        for address in [shop.one.address, shop.other.address] {
            eventually("the next one gets in", async || {
                let answer = ask(address, "GET /panics").await;
                // Nobody catches panics here, so the connection ends without an answer.
                let panicked = answer.0.is_empty();
                assert!(panicked || answer.status() == 409, "{answer:?}");
                panicked
            })
            .await;
        }
    }
    shop.close().await;
}

async fn a_slot_that_is_kept_until_the_response_is_free_while_the_body_streams<S: Server>() {
    let shop = Shop::open::<S>().await;
    let mut streams = Vec::new();
    for number in 0..4 {
        let address = [shop.one.address, shop.other.address][number % 2];
        // There is one slot. It is given up with the head, and released in the server a moment later.
        eventually("there is room", async || {
            let mut client = Client::asks(address, "GET /early", "").await;
            let head = client.reads_until("\r\n\r\n").await;
            let is_in = head.starts_with("HTTP/1.1 200");
            streams.extend(is_in.then_some(client));
            is_in
        })
        .await;
    }
    for stream in &mut streams {
        stream.reads_until("more of it\n").await;
    }
    drop(streams);
    shop.close().await;
}

on_each_framework!(
    crate::http::servers:
    one_request_an_order_at_a_time_over_two_instances,
    those_who_wait_get_their_turn_over_two_instances,
    never_more_than_n_slots_over_two_instances_while_bodies_stream,
    a_killed_backend_cancels_its_handlers_and_frees_their_locks,
    a_database_that_is_down_is_503_and_never_busy,
    a_network_that_freezes_cancels_the_handler_and_is_503_in_time,
    of_1500_at_once_over_two_instances_as_many_get_in_as_there_are_slots,
    a_handler_that_panics_frees_its_lock_and_its_slot,
    a_slot_that_is_kept_until_the_response_is_free_while_the_body_streams,
);
