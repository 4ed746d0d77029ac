//! Clients that leave at random, beside some that stay.

use std::{net::SocketAddr, time::Duration};

use fastrand::Rng;
use latchwork_harness::http::WAYS_TO_LEAVE;

use super::{Client, Shop, ask, servers::Server};
use crate::onlooker::{assert_quiet, eventually};

const LEAVE: u32 = 100;
const STAY: u32 = 4;

async fn a_thousand_clients_that_leave_at_random_leave_nothing_and_no_half_stored_work<S: Server>() {
    leave_nothing::<S>(10).await;
}

async fn two_hundred_clients_that_leave_at_random_leave_nothing_and_no_half_stored_work<S: Server>() {
    leave_nothing::<S>(2).await;
}

/// Those who stay are the proof that requests got through at all, however busy the machine is.
async fn leave_nothing<S: Server>(rounds: u32) {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let shop = Shop::with_pools_of::<S>(4).await;
    let addresses = [shop.one.address, shop.other.address];
    for round in 0..rounds {
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..LEAVE {
            clients.spawn(leaves(addresses[number as usize % 2], random.fork()));
        }
        let mut stay = tokio::task::JoinSet::new();
        for number in 0..STAY {
            let (address, id) = (addresses[number as usize % 2], round * STAY + number);
            // Each under a key that those who leave want as well.
            stay.spawn(async move { ask(address, &format!("POST /stays/{number}/{id}")).await.status() });
        }
        clients.join_all().await;
        assert_eq!(stay.join_all().await, [200; STAY as usize]);
    }
    // Nobody has a lock or a transaction, and the pools still have their connections.
    shop.is_clean().await;
    let halves = "SELECT count(*) FROM (SELECT FROM charges GROUP BY id HAVING count(*) <> 2) AS half";
    assert_eq!(shop.onlooker.number(halves).await, 0);
    let stayed = "SELECT count(DISTINCT id) FROM charges WHERE id >= 0";
    assert_eq!(shop.onlooker.number(stayed).await, i64::from(rounds * STAY));
    for instance in [&shop.one, &shop.other] {
        assert_eq!(ask(instance.address, "POST /add").await.status(), 200);
    }
    let onlooker = &shop.onlooker;
    let sessions =
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    eventually("there are as many sessions as the pools may have", async || {
        onlooker.number(sessions).await <= 2 * 4
    })
    .await;
    assert_quiet(&shop.cluster);
    shop.close().await;
}

/// Sends one request or two, with or without a body that nobody reads, and leaves after a moment.
async fn leaves(server: SocketAddr, mut random: Rng) {
    let path = ["random", "all-random"][random.usize(..2)];
    let head = format!("POST /{path}/{} HTTP/1.1\r\nhost: t\r\n", random.u8(..4));
    let sent = match random.u8(..3) {
        0 => format!("{head}\r\n"),
        1 => format!("{head}\r\n{head}\r\n"),
        _ => format!(
            "{head}content-length: {BODY}\r\n\r\n{}",
            "x".repeat(random.usize(..BODY))
        ),
    };
    let mut client = Client::connect(server).await;
    client.offers(sent.as_bytes()).await;
    // Not to wait for anything: a moment as good as any other.
    tokio::time::sleep(Duration::from_micros(random.u64(..8000))).await;
    let _rest = client.leave(WAYS_TO_LEAVE[random.usize(..3)]).await;
}

/// So many bytes that a server stops to read, and so to notice that its client leaves.
const BODY: usize = 100_000;

on_each_framework!(
    crate::http::tx::servers:
    a_thousand_clients_that_leave_at_random_leave_nothing_and_no_half_stored_work,
);

on_each_framework_and_library!(
    crate::http::tx::servers:
    two_hundred_clients_that_leave_at_random_leave_nothing_and_no_half_stored_work,
);
