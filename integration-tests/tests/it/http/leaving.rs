//! Clients that leave at any moment.

use std::{net::SocketAddr, time::Duration};

use fastrand::Rng;
use latchwork_core::Namespace;
use latchwork_harness::http::{Client, Event, WAYS_TO_LEAVE, ask};

use super::{servers::Server, shop::Shop};
use crate::onlooker::eventually;

async fn a_client_that_leaves_frees_its_lock_in_the_server<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    for how in WAYS_TO_LEAVE {
        let client = Client::asks(shop.one.address, "POST /orders/42/charge", "").await;
        shop.one.sees(Event::Entered).await;
        assert_eq!(shop.onlooker.held().await, 1, "{how:?}");
        let _rest = client.leave(how).await;
        shop.one.sees(Event::Dropped).await;
        let onlooker = &shop.onlooker;
        eventually("the server has freed the lock", async || onlooker.held().await == 0).await;
    }
    shop.close().await;
}

async fn a_client_that_leaves_while_it_waits_gives_up_its_place<S: Server>() {
    let shop = Shop::open::<S>().await;
    let key = Namespace::unnamed().key("patient").unwrap().as_bigint().unwrap();
    for how in WAYS_TO_LEAVE {
        shop.onlooker.value(&format!("SELECT pg_advisory_lock({key})")).await;
        let client = Client::asks(shop.one.address, "POST /patient", "").await;
        shop.onlooker.waiter().await;
        let _rest = client.leave(how).await;
        // The wait in the server is cancelled, long before its limit.
        let onlooker = &shop.onlooker;
        eventually("it has left the queue", async || onlooker.queued().await == 0).await;
        shop.onlooker.value(&format!("SELECT pg_advisory_unlock({key})")).await;
        assert_eq!(ask(shop.other.address, "POST /patient").await.status(), 200, "{how:?}");
    }
    shop.close().await;
}

/// Servers do not read on while a handler runs, so they may not notice. The lock is free at its end in any case.
async fn a_client_that_leaves_with_more_to_say_frees_its_lock_at_the_latest_with_its_handler<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let body = format!("content-length: 200000\r\n\r\n{}", "x".repeat(150_000));
    let pipelined = "\r\nGET /nowhere HTTP/1.1\r\nhost: t\r\n\r\n".to_owned();
    for more in [body, pipelined] {
        for how in WAYS_TO_LEAVE {
            let mut client = Client::connect(shop.one.address).await;
            let head = "POST /orders/42/charge HTTP/1.1\r\nhost: t\r\n";
            client.offers(format!("{head}{more}").as_bytes()).await;
            shop.one.sees(Event::Entered).await;
            let _rest = client.leave(how).await;
            shop.one.lets_go(1);
            let end = shop.one.next().await;
            let onlooker = &shop.onlooker;
            eventually("the server has freed the lock", async || onlooker.held().await == 0).await;
            if end == Event::Dropped {
                // Nobody has gone on for whom it was meant.
                assert_eq!(ask(shop.one.address, "POST /orders/42/charge").await.status(), 200);
                shop.one.sees(Event::Entered).await;
                assert_eq!(shop.one.next().await, Event::Done);
                eventually("the server has freed the lock", async || onlooker.held().await == 0).await;
            }
        }
    }
    shop.close().await;
}

const ROUNDS: usize = 10;
const LEAVE: usize = 100;

/// Those who stay are the proof that requests got through at all, however busy the machine is.
async fn of_a_thousand_clients_that_leave_at_random_none_leaves_a_lock_in_the_server<S: Server>() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let shop = Shop::open_to_crowds::<S>().await;
    let servers = [shop.one.address, shop.other.address];
    for _ in 0..ROUNDS {
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..LEAVE {
            clients.spawn(leaves(servers[number % 2], random.fork()));
        }
        for server in servers {
            assert_eq!(ask(server, "POST /patient").await.status(), 200);
        }
        clients.join_all().await;
    }
    shop.close().await;
}

/// Sends one request or a part of it, and leaves after a moment.
async fn leaves(server: SocketAddr, mut random: Rng) {
    const REQUESTS: [&str; 3] = ["POST /patient", "POST /complete", "GET /stream"];
    let request = format!("{} HTTP/1.1\r\nhost: t\r\n\r\n", REQUESTS[random.usize(..3)]).into_bytes();
    let sent = if random.bool() {
        request.len()
    } else {
        random.usize(..=request.len())
    };
    let mut client = Client::connect(server).await;
    client.send(&request[..sent]).await;
    // Not to wait for anything: a moment as good as any other.
    tokio::time::sleep(Duration::from_micros(random.u64(..4000))).await;
    let _rest = client.leave(WAYS_TO_LEAVE[random.usize(..3)]).await;
}

on_each_framework!(
    crate::http::servers:
    a_client_that_leaves_frees_its_lock_in_the_server,
    a_client_that_leaves_while_it_waits_gives_up_its_place,
    a_client_that_leaves_with_more_to_say_frees_its_lock_at_the_latest_with_its_handler,
    of_a_thousand_clients_that_leave_at_random_none_leaves_a_lock_in_the_server,
);
