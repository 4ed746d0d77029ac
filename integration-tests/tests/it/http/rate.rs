//! Rate limits of requests: two instances of one service on one database, for each framework.

mod instance;
mod servers;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use fastrand::Rng;
use latchwork_harness::{
    Cluster, StopMode,
    http::{Answer, Client, WAYS_TO_LEAVE},
};
use latchwork_postgres::{PostgresOptions, schema};

use self::{instance::Instance, servers::Server};
use crate::onlooker::{Onlooker, eventually};

struct Shop {
    cluster: Cluster,
    onlooker: Onlooker,
    one: Instance,
    other: Instance,
}

impl Shop {
    async fn open<S: Server>() -> Self {
        let cluster = Cluster::start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        schema::install(&onlooker.0).await.unwrap();
        // A server that is slow because the machine is busy must not pass for an outage here.
        let one = Instance::start::<S>(&cluster.url(), PostgresOptions::default()).await;
        let other = Instance::start::<S>(&cluster.url(), PostgresOptions::default()).await;
        Self {
            cluster,
            onlooker,
            one,
            other,
        }
    }

    async fn rows(&self) -> i64 {
        self.onlooker.number("SELECT count(*) FROM latchwork.rate_limits").await
    }

    async fn close(self) {
        self.one.close().await;
        self.other.close().await;
    }
}

async fn ask(server: SocketAddr, request: &str, headers: &str) -> Answer {
    let headers = format!("{headers}connection: close\r\n");
    Client::asks(server, request, &headers).await.answer().await
}

/// Asks as somebody.
async fn get(server: SocketAddr, path: &str, who: &str) -> Answer {
    ask(server, &format!("GET {path}"), &format!("x-api-key: {who}\r\n")).await
}

fn is_refused(answer: &Answer) {
    assert_eq!(answer.status(), 429, "{answer:?}");
    assert!(answer.0.contains("urn:latchwork:problem:rate-limited"), "{answer:?}");
    let after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=86_400).contains(&after), "{after}");
}

async fn a_burst_is_one_burst_over_both_instances_and_everybody_has_their_own<S: Server>() {
    let shop = Shop::open::<S>().await;
    let servers = [shop.one.address, shop.other.address, shop.one.address];
    for (left, server) in [2, 1, 0].into_iter().zip(servers) {
        let answer = get(server, "/both", "ann").await;
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.body(), format!("allowed=true degraded=false remaining={left}"));
        let limit = answer.header("ratelimit").unwrap();
        assert!(limit.starts_with(&format!("\"both\";r={left};t=")), "{limit}");
        let policy = answer.header("ratelimit-policy").unwrap();
        assert_eq!(policy, "\"both\";q=3;w=259200, \"both-2\";q=5;w=432000");
    }
    for server in servers {
        let refused = get(server, "/both", "ann").await;
        is_refused(&refused);
        assert!(refused.header("ratelimit").unwrap().starts_with("\"both\";r=0;t="));
    }
    assert_eq!(get(shop.one.address, "/both", "bob").await.status(), 200);
    assert_eq!(ask(shop.one.address, "GET /both", "").await.status(), 400);
    assert_eq!(shop.rows().await, 2);
    shop.close().await;
}

async fn of_64_at_once_with_a_limit_of_one_one_gets_in<S: Server>() {
    let shop = Shop::open::<S>().await;
    let servers = [shop.one.address, shop.other.address];
    let asked = (0..64).map(|at| get(servers[at % 2], "/one", "ann"));
    let answers = futures_util::future::join_all(asked).await;
    assert_eq!(answers.iter().filter(|answer| answer.status() == 200).count(), 1);
    answers
        .iter()
        .filter(|answer| answer.status() != 200)
        .for_each(is_refused);
    shop.close().await;
}

async fn a_request_has_its_own_cost_and_quotas<S: Server>() {
    let shop = Shop::open::<S>().await;
    let server = shop.one.address;
    for (query, status, left) in [
        ("8", 200, "2"),
        ("0", 200, "2"),
        ("3", 429, "2"),
        ("2", 200, "0"),
        ("0", 200, "0"),
    ] {
        let answer = get(server, &format!("/costly?{query}"), "ann").await;
        assert_eq!(answer.status(), status, "{query}");
        assert!(
            answer.header("ratelimit").unwrap().contains(&format!("r={left};")),
            "{query} {answer:?}"
        );
    }
    // No wait would help.
    let never = get(server, "/costly?11", "ann").await;
    assert_eq!((never.status(), never.header("retry-after")), (429, None));

    let paid = "x-api-key: ann\r\nx-paid: yes\r\n";
    for expected in [200, 200, 200, 200, 429] {
        assert_eq!(ask(server, "GET /plans", paid).await.status(), expected);
    }
    for expected in [200, 429] {
        assert_eq!(get(server, "/plans", "bob").await.status(), expected);
    }
    shop.close().await;
}

async fn a_limit_that_is_tried_out_refuses_nobody_and_tells_the_handler<S: Server>() {
    let shop = Shop::open::<S>().await;
    for allowed in [true, false, false] {
        let answer = get(shop.one.address, "/shadow", "ann").await;
        assert_eq!((answer.status(), answer.header("ratelimit")), (200, None));
        assert!(answer.body().starts_with(&format!("allowed={allowed} ")), "{answer:?}");
    }
    shop.close().await;
}

async fn the_older_headers_are_there_for_those_who_want_them<S: Server>() {
    let shop = Shop::open::<S>().await;
    let answer = get(shop.one.address, "/older", "ann").await;
    assert_eq!(answer.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("1"));
    let reset: u64 = answer.header("x-ratelimit-reset").unwrap().parse().unwrap();
    assert!((86_390..=86_400).contains(&reset), "{reset}");
    assert_eq!(answer.header("ratelimit"), None);
    shop.close().await;
}

async fn a_client_is_its_address_whatever_it_says_and_preflights_are_not_charged<S: Server>() {
    let shop = Shop::open::<S>().await;
    let server = shop.one.address;
    let preflight = "origin: https://a.example\r\naccess-control-request-method: POST\r\n";
    for _ in 0..4 {
        let answer = ask(server, "OPTIONS /by-client", preflight).await;
        assert_eq!((answer.status(), answer.header("ratelimit")), (405, None));
    }
    for (at, expected) in [200, 200, 429, 429].into_iter().enumerate() {
        let forged = format!("x-forwarded-for: 203.0.113.{at}\r\nforwarded: for=203.0.113.{at}\r\n");
        assert_eq!(ask(server, "GET /by-client", &forged).await.status(), expected);
    }
    assert_eq!(shop.rows().await, 1);
    shop.close().await;
}

async fn behind_a_trusted_proxy_everybody_has_their_own_burst<S: Server>() {
    let shop = Shop::open::<S>().await;
    let from = |hops: &str| format!("x-forwarded-for: {hops}\r\n");
    for hop in 1..4 {
        let hops = from(&format!("198.51.100.{hop}"));
        for (server, expected) in [
            (shop.one.address, 200),
            (shop.other.address, 200),
            (shop.one.address, 429),
        ] {
            assert_eq!(ask(server, "GET /by-proxied-client", &hops).await.status(), expected);
        }
    }
    // What its client wrote before is worth nothing.
    for forged in ["203.0.113.9, 198.51.100.1", "203.0.113.10,198.51.100.1"] {
        is_refused(&ask(shop.other.address, "GET /by-proxied-client", &from(forged)).await);
    }
    assert_eq!(shop.rows().await, 3);
    shop.close().await;
}

async fn a_key_that_is_missing_sent_twice_or_no_text_is_400_and_not_charged<S: Server>() {
    let shop = Shop::open::<S>().await;
    for headers in [
        &b""[..],
        b"x-api-key:\r\n",
        b"x-api-key: ann\r\nx-api-key: ann\r\n",
        b"x-api-key: ann\r\nX-API-KEY: bob\r\n",
        b"x-api-key: \xfc\r\n",
    ] {
        let mut client = Client::connect(shop.one.address).await;
        let head = b"GET /one HTTP/1.1\r\nhost: t\r\nconnection: close\r\n";
        client.send(&[&head[..], headers, b"\r\n"].concat()).await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), 400, "{headers:?}");
        assert!(answer.0.contains("urn:latchwork:problem:bad-key"), "{answer:?}");
    }
    assert_eq!(shop.rows().await, 0);
    // Text that is not ASCII is a key as any other.
    for (server, expected) in [(shop.one.address, 200), (shop.other.address, 429)] {
        assert_eq!(get(server, "/one", "änne").await.status(), expected);
    }
    shop.close().await;
}

const ROUNDS: usize = 10;
const LEAVE: usize = 100;

/// Those who stay are the proof that requests got through at all, however busy the machine is.
async fn a_thousand_clients_that_leave_at_random_cost_nobody_else_anything<S: Server>() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let shop = Shop::open::<S>().await;
    let servers = [shop.one.address, shop.other.address];
    for round in 0..ROUNDS {
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..LEAVE {
            clients.spawn(leaves(servers[number % 2], random.fork()));
        }
        let who = format!("stays-{round}");
        for (left, server) in [2, 1, 0].into_iter().zip([servers[0], servers[1], servers[0]]) {
            let answer = get(server, "/both", &who).await;
            assert_eq!(answer.status(), 200);
            assert_eq!(answer.body(), format!("allowed=true degraded=false remaining={left}"));
        }
        is_refused(&get(servers[1], "/both", &who).await);
        clients.join_all().await;
    }
    // Each of theirs has charged what it asked for or nothing, and none of them more than there was.
    for key in 0..4 {
        let answers = futures_util::future::join_all((0..20).map(|at| async move {
            let answer = get(servers[at % 2], "/costly?5", &key.to_string()).await;
            answer.status() == 200
        }));
        assert!(answers.await.into_iter().filter(|allowed| *allowed).count() <= 2);
    }
    shop.close().await;
}

async fn leaves(server: SocketAddr, mut random: Rng) {
    let key = random.u8(..4);
    let request = format!("GET /costly?5 HTTP/1.1\r\nhost: t\r\nx-api-key: {key}\r\n\r\n").into_bytes();
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

async fn without_the_database_open_limits_go_on_alone_and_closed_ones_say_503_until_it_is_back<S: Server>() {
    let shop = Shop::open::<S>().await;
    assert_eq!(get(shop.one.address, "/one", "ann").await.status(), 200);
    assert_eq!(ask(shop.one.address, "POST /shut", "").await.status(), 200);
    shop.cluster.stop(StopMode::Immediate).unwrap();
    // Each instance alone, and with a limit of its own.
    for instance in [&shop.one, &shop.other] {
        let begun = Instant::now();
        let alone = get(instance.address, "/one", "bob").await;
        assert_eq!(alone.status(), 200);
        assert!(alone.body().contains("degraded=true"), "{alone:?}");
        is_refused(&get(instance.address, "/one", "bob").await);
        let shut = ask(instance.address, "POST /shut", "").await;
        assert_eq!(shut.status(), 503);
        assert!(shut.0.contains("urn:latchwork:problem:unavailable"), "{shut:?}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    }
    shop.cluster.restart(StopMode::Fast).unwrap();
    for instance in [&shop.one, &shop.other] {
        eventually("it works again", async || {
            ask(instance.address, "POST /shut", "").await.status() == 200
        })
        .await;
        let who = format!("back on {}", instance.address);
        eventually("it is no longer alone", async || {
            get(instance.address, "/both", &who)
                .await
                .body()
                .contains("degraded=false")
        })
        .await;
    }
    // Both count together again.
    assert_eq!(get(shop.one.address, "/one", "eve").await.status(), 200);
    is_refused(&get(shop.other.address, "/one", "eve").await);
    shop.close().await;
}

on_each_framework!(
    crate::http::rate::servers:
    a_burst_is_one_burst_over_both_instances_and_everybody_has_their_own,
    of_64_at_once_with_a_limit_of_one_one_gets_in,
    a_request_has_its_own_cost_and_quotas,
    a_limit_that_is_tried_out_refuses_nobody_and_tells_the_handler,
    the_older_headers_are_there_for_those_who_want_them,
    a_client_is_its_address_whatever_it_says_and_preflights_are_not_charged,
    behind_a_trusted_proxy_everybody_has_their_own_burst,
    a_key_that_is_missing_sent_twice_or_no_text_is_400_and_not_charged,
    a_thousand_clients_that_leave_at_random_cost_nobody_else_anything,
    without_the_database_open_limits_go_on_alone_and_closed_ones_say_503_until_it_is_back,
);
