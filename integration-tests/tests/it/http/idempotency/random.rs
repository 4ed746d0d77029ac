//! Clients that leave at random, beside some that stay.

use std::{net::SocketAddr, time::Duration};

use fastrand::Rng;
use futures_util::future::join_all;
use latchwork_harness::http::WAYS_TO_LEAVE;

use super::{Client, Shop, post, servers::Server};
use crate::onlooker::{assert_quiet, eventually};

const ROUNDS: usize = 10;
const LEAVE: usize = 100;

/// How many keys there are, for each of the routes.
const KEYS: usize = 50;

/// One of them is carried out whatever its client does, the other is cancelled.
const PATHS: [&str; 2] = ["/payments", "/hasty"];

async fn of_a_thousand_clients_that_leave_at_random_nobody_pays_twice<S: Server>() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let shop = Shop::with_pools_of::<S>(4).await;
    let servers = [shop.one.address, shop.other.address];
    for round in 0..ROUNDS {
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..LEAVE {
            clients.spawn(leaves(servers[number % 2], random.fork()));
        }
        // The proof that requests get through at all, however busy the machine is.
        let stay = servers.map(|server| async move {
            let key = format!("stays-{round}-{server}");
            post(server, "/patient", &key, BODY).await.status()
        });
        assert_eq!(join_all(stay).await, [201; 2]);
        clients.join_all().await;
    }
    shop.is_clean().await;
    let stayed = (2 * ROUNDS) as i64;
    // In one look, for a server may read the last requests of those who left only now.
    let unkept = "SELECT (SELECT count(*) FROM payments) - (SELECT count(*) FROM latchwork.idempotency)";
    assert_eq!(shop.onlooker.number(unkept).await, 0);
    assert!(shop.payments().await >= stayed);
    // Whether it was carried out or not: whoever asks again is served, once.
    for path in PATHS {
        for key in 0..KEYS {
            eventually("it is served", async || {
                post(servers[key % 2], path, &key.to_string(), BODY).await.status() == 201
            })
            .await;
        }
    }
    let all = stayed + (PATHS.len() * KEYS) as i64;
    assert_eq!((shop.payments().await, shop.records().await), (all, all));
    shop.is_clean().await;
    assert_quiet(&shop.cluster);
    shop.close().await;
}

/// Sends a request or a part of it, and leaves after a moment.
async fn leaves(server: SocketAddr, mut random: Rng) {
    let (path, key) = (PATHS[random.usize(..2)], random.usize(..KEYS));
    let length = BODY.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: t\r\nidempotency-key: {key}\r\nx-user: ann\r\ncontent-length: {length}\r\n\r\n{BODY}"
    );
    let sent = if random.u8(..4) == 0 {
        random.usize(..request.len())
    } else {
        request.len()
    };
    let mut client = Client::connect(server).await;
    client.offers(&request.as_bytes()[..sent]).await;
    // Not to wait for anything: a moment as good as any other.
    tokio::time::sleep(Duration::from_micros(random.u64(..8000))).await;
    let _rest = client.leave(WAYS_TO_LEAVE[random.usize(..3)]).await;
}

const BODY: &str = "{\"amount\": 5}";

on_each_framework!(
    crate::http::idempotency::servers:
    of_a_thousand_clients_that_leave_at_random_nobody_pays_twice,
);
