//! Requests that may be sent again: two instances of one service on one database, for each
//! framework.

mod instance;
mod servers;

use std::{net::SocketAddr, sync::atomic::Ordering};

use latchwork_harness::{
    Cluster,
    http::{Answer, Client, Event, Leave},
};
use latchwork_postgres::schema;

use self::{
    instance::Instance,
    servers::{CAP, Server},
};
use crate::onlooker::{Onlooker, eventually, quick};

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
        onlooker.0.batch_execute(TABLES).await.unwrap();
        schema::install(&onlooker.0).await.unwrap();
        let one = Instance::start::<S>(&cluster.url(), quick()).await;
        let other = Instance::start::<S>(&cluster.url(), quick()).await;
        Self {
            cluster,
            onlooker,
            one,
            other,
        }
    }

    async fn payments(&self) -> i64 {
        self.onlooker.number("SELECT count(*) FROM payments").await
    }

    async fn records(&self) -> i64 {
        self.onlooker.number("SELECT count(*) FROM latchwork.idempotency").await
    }

    async fn close(self) {
        self.one.close().await;
        self.other.close().await;
        let onlooker = &self.onlooker;
        eventually("no lock and no transaction is left", async || {
            onlooker.held().await == 0 && onlooker.number(IN_TRANSACTION).await == 0
        })
        .await;
    }
}

const TABLES: &str = "CREATE TABLE payments (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY); \
     CREATE TABLE refunds (payment bigint REFERENCES payments DEFERRABLE INITIALLY DEFERRED)";

const IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'";

/// Posts a body under a key, as one user.
async fn post(server: SocketAddr, path: &str, key: &str, body: &str) -> Answer {
    send(
        server,
        path,
        &format!("idempotency-key: {key}\r\nx-user: ann\r\n"),
        body,
    )
    .await
}

async fn send(server: SocketAddr, path: &str, headers: &str, body: &str) -> Answer {
    asks(server, path, headers, body).await.answer().await
}

async fn asks(server: SocketAddr, path: &str, headers: &str, body: &str) -> Client {
    let headers = format!("{headers}connection: close\r\ncontent-length: {}\r\n", body.len());
    let mut client = Client::asks(server, &format!("POST {path}"), &headers).await;
    client.send(body.as_bytes()).await;
    client
}

fn is_problem(answer: &Answer, status: u16, kind: &str) {
    assert_eq!(answer.status(), status, "{answer:?}");
    assert!(
        answer.0.contains(&format!("urn:latchwork:problem:{kind}")),
        "{answer:?}"
    );
}

async fn who_repeats_a_request_is_given_the_first_response_and_nothing_is_done_again<S: Server>() {
    let shop = Shop::open::<S>().await;
    let first = post(shop.one.address, "/payments", "k-1", "{\"amount\": 5}").await;
    assert_eq!(first.status(), 201);
    assert_eq!(first.header("set-cookie"), Some("session=1"));
    assert_eq!(first.header("idempotent-replayed"), None);
    for (server, key) in [
        (shop.one.address, "k-1"),
        (shop.other.address, "k-1"),
        (shop.other.address, "\"k-1\""),
    ] {
        let again = post(server, "/payments", key, "{\"amount\": 5}").await;
        assert_eq!(again.status(), 201);
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!(again.header("location"), first.header("location"));
        assert_eq!(again.header("content-type"), Some("application/x-echo"));
        assert_eq!(again.header("set-cookie"), None);
        assert_eq!(again.body(), "{\"amount\": 5}");
    }
    assert_eq!((shop.payments().await, shop.records().await), (1, 1));
    shop.close().await;
}

async fn of_many_at_once_with_one_key_one_is_carried_out<S: Server>() {
    let shop = Shop::open::<S>().await;
    for round in 0..5 {
        let key = format!("round-{round}");
        let requests = (0..32).map(|at| {
            let server = [shop.one.address, shop.other.address][at % 2];
            post(server, "/payments", &key, "x")
        });
        for answer in futures_util::future::join_all(requests).await {
            match answer.status() {
                201 => {}
                _ => is_problem(&answer, 409, "idempotency-in-flight"),
            }
        }
        assert_eq!(shop.payments().await, round + 1);
        // It is carried out by now, and nobody stands in another's way.
        let requests = (0..8).map(|_| post(shop.one.address, "/payments", &key, "x"));
        for answer in futures_util::future::join_all(requests).await {
            assert_eq!(
                (answer.status(), answer.header("idempotent-replayed")),
                (201, Some("true"))
            );
        }
    }
    shop.close().await;
}

async fn a_key_with_another_request_is_refused_and_other_users_and_routes_have_keys_of_their_own<S: Server>() {
    let shop = Shop::open::<S>().await;
    let server = shop.one.address;
    assert_eq!(post(server, "/payments", "k", "one").await.status(), 201);
    is_problem(
        &post(server, "/payments", "k", "other").await,
        422,
        "idempotency-mismatch",
    );
    is_problem(
        &post(server, "/payments?x=1", "k", "one").await,
        422,
        "idempotency-mismatch",
    );
    let typed = "idempotency-key: k\r\nx-user: ann\r\ncontent-type: text/plain\r\n";
    is_problem(
        &send(server, "/payments", typed, "one").await,
        422,
        "idempotency-mismatch",
    );
    assert_eq!(shop.payments().await, 1);

    let bob = send(server, "/payments", "idempotency-key: k\r\nx-user: bob\r\n", "one").await;
    let nobody = send(server, "/payments", "idempotency-key: k\r\n", "one").await;
    let refund = post(server, "/payments/7/refund", "k", "one").await;
    for answer in [bob, nobody, refund] {
        assert_eq!((answer.status(), answer.header("idempotent-replayed")), (201, None));
    }
    // One route, another path.
    is_problem(
        &post(server, "/payments/8/refund", "k", "one").await,
        422,
        "idempotency-mismatch",
    );
    shop.close().await;
}

async fn a_request_without_a_proper_key_is_refused_unless_keys_are_optional<S: Server>() {
    let shop = Shop::open::<S>().await;
    let server = shop.one.address;
    for headers in [
        "",
        "idempotency-key: a\r\nidempotency-key: a\r\n",
        "idempotency-key: ü\r\n",
        "idempotency-key: \"\r\n",
    ] {
        is_problem(
            &send(server, "/payments", headers, "").await,
            400,
            "bad-idempotency-key",
        );
    }
    assert_eq!(send(server, "/optional", "", "").await.status(), 200);
    let get = Client::asks(server, "GET /payments", "connection: close\r\n").await;
    assert_eq!(get.answer().await.status(), 200);
    assert_eq!((shop.payments().await, shop.records().await), (0, 0));
    shop.close().await;
}

async fn a_request_in_flight_is_refused_and_its_client_may_leave<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let client = asks(shop.one.address, "/slow", "idempotency-key: k\r\n", "").await;
    shop.one.sees(Event::Entered).await;
    let refused = send(shop.other.address, "/slow", "idempotency-key: k\r\n", "").await;
    is_problem(&refused, 409, "idempotency-in-flight");
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(client.leave(Leave::Rst).await);
    shop.one.lets_go(1);
    shop.one.sees(Event::Done).await;
    eventually("the response is kept", async || shop.records().await == 1).await;
    let again = send(shop.other.address, "/slow", "idempotency-key: k\r\n", "").await;
    assert_eq!(
        (again.status(), again.header("idempotent-replayed")),
        (200, Some("true"))
    );
    assert_eq!(shop.payments().await, 1);
    shop.close().await;
}

async fn a_handler_that_is_cancelled_leaves_nothing_and_the_retry_runs_at_once<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    for how in [Leave::Fin, Leave::Rst] {
        let client = asks(shop.one.address, "/leaves", "idempotency-key: k\r\n", "").await;
        shop.one.sees(Event::Entered).await;
        drop(client.leave(how).await);
        shop.one.sees(Event::Dropped).await;
        let onlooker = &shop.onlooker;
        eventually("it is rolled back", async || onlooker.held().await == 0).await;
        assert_eq!((shop.payments().await, shop.records().await), (0, 0));
    }
    shop.other.lets_go(1);
    assert_eq!(
        send(shop.other.address, "/leaves", "idempotency-key: k\r\n", "")
            .await
            .status(),
        200
    );
    shop.close().await;
}

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

async fn what_does_not_succeed_is_rolled_back_and_runs_again<S: Server>() {
    let shop = Shop::open::<S>().await;
    for _ in 0..2 {
        let failed = post(shop.one.address, "/fails", "k", "").await;
        assert_eq!((failed.status(), failed.header("idempotent-replayed")), (500, None));
        is_problem(
            &post(shop.one.address, "/deferred", "k", "").await,
            500,
            "transaction-failed",
        );
    }
    assert_eq!((shop.payments().await, shop.records().await), (0, 0));
    shop.close().await;
}

async fn a_response_that_is_too_large_or_a_stream_arrives_whole_and_is_not_made_twice<S: Server>() {
    let shop = Shop::open::<S>().await;
    let large = post(shop.one.address, "/large", "k", "").await;
    assert_eq!((large.status(), large.body().len()), (200, CAP + 1));
    let stream = post(shop.one.address, "/stream", "k", "").await;
    assert_eq!(stream.status(), 200);
    assert!(stream.0.contains("part 2"), "{stream:?}");
    for path in ["/large", "/stream"] {
        let again = post(shop.other.address, path, "k", "").await;
        is_problem(&again, 409, "idempotency-response-gone");
        assert_eq!(again.header("retry-after"), None);
    }
    assert_eq!(shop.payments().await, 2);
    shop.close().await;
}

async fn a_body_over_the_cap_is_refused_however_it_is_sent_and_one_at_the_cap_arrives<S: Server>() {
    let shop = Shop::open::<S>().await;
    let server = shop.one.address;
    let over = "y".repeat(CAP + 1);
    is_problem(&post(server, "/payments", "k", &over).await, 413, "body-too-large");
    let headers = "idempotency-key: k\r\nconnection: close\r\ntransfer-encoding: chunked\r\n";
    let mut chunked = Client::asks(server, "POST /payments", headers).await;
    chunked
        .send(format!("{:x}\r\n{over}\r\n0\r\n\r\n", over.len()).as_bytes())
        .await;
    is_problem(&chunked.answer().await, 413, "body-too-large");
    // It says that more will come, and ends.
    let headers = "idempotency-key: k\r\nconnection: close\r\ncontent-length: 10\r\n";
    let mut lying = Client::asks(server, "POST /payments", headers).await;
    lying.send(b"four").await;
    drop(lying.leave(Leave::Fin).await);
    let at_cap = "z".repeat(CAP);
    let taken = post(server, "/payments", "k", &at_cap).await;
    assert_eq!((taken.status(), taken.body()), (201, &*at_cap));
    assert_eq!(shop.payments().await, 1);
    shop.close().await;
}

async fn work_outside_the_database_is_done_once_and_nobody_guesses_how_it_ended<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let server = shop.one.address;
    for replayed in [None, Some("true")] {
        let sent = post(server, "/mails", "k", "hello").await;
        assert_eq!((sent.status(), sent.header("idempotent-replayed")), (202, replayed));
    }
    assert_eq!(shop.one.mails.load(Ordering::SeqCst), 1);
    for _ in 0..2 {
        assert_eq!(post(server, "/mails", "bounced", "bounces").await.status(), 502);
    }
    assert_eq!(shop.one.mails.load(Ordering::SeqCst), 3);

    let client = asks(server, "/slow-mails", "idempotency-key: k\r\n", "").await;
    shop.one.sees(Event::Entered).await;
    let refused = send(shop.other.address, "/slow-mails", "idempotency-key: k\r\n", "").await;
    is_problem(&refused, 409, "idempotency-in-flight");
    drop(client.leave(Leave::Rst).await);
    shop.one.sees(Event::Dropped).await;
    let onlooker = &shop.onlooker;
    eventually("the lock is given up", async || onlooker.held().await == 0).await;
    let unknown = send(shop.other.address, "/slow-mails", "idempotency-key: k\r\n", "").await;
    is_problem(&unknown, 409, "idempotency-unknown");
    assert_eq!(shop.other.mails.load(Ordering::SeqCst), 0);
    shop.close().await;
}

async fn a_record_that_has_expired_is_not_replayed_and_is_swept<S: Server>() {
    let shop = Shop::open::<S>().await;
    assert_eq!(post(shop.one.address, "/payments", "old", "").await.status(), 201);
    assert_eq!(post(shop.one.address, "/payments", "older", "").await.status(), 201);
    shop.cluster
        .psql("UPDATE latchwork.idempotency SET expires_at = now() - interval '1 second'")
        .unwrap();
    // The other instance has not swept yet.
    let again = post(shop.other.address, "/payments", "old", "").await;
    assert_eq!((again.status(), again.header("idempotent-replayed")), (201, None));
    eventually("the other one is deleted", async || shop.records().await == 1).await;
    assert_eq!(shop.payments().await, 3);
    shop.close().await;
}

async fn a_sweep_deletes_all_that_has_expired<S: Server>() {
    let shop = Shop::open::<S>().await;
    let expired = "INSERT INTO latchwork.idempotency (id, fingerprint, state, expires_at) \
         SELECT int4send(n), '', 'tombstone', now() - interval '1 second' FROM generate_series(1, 2500) n";
    shop.cluster.psql(expired).unwrap();
    assert_eq!(post(shop.one.address, "/payments", "k", "").await.status(), 201);
    eventually("only the new record is left", async || shop.records().await == 1).await;
    shop.close().await;
}

async fn who_repeats_work_outside_the_database_at_once_with_others_is_given_the_response<S: Server>() {
    let shop = Shop::open::<S>().await;
    assert_eq!(post(shop.one.address, "/mails", "k", "hello").await.status(), 202);
    let asks = (0..32).map(|at| {
        let instance = if at % 2 == 0 { &shop.one } else { &shop.other };
        post(instance.address, "/mails", "k", "hello")
    });
    for answer in futures_util::future::join_all(asks).await {
        assert_eq!(
            (answer.status(), answer.header("idempotent-replayed")),
            (202, Some("true"))
        );
    }
    shop.close().await;
}

async fn work_outside_the_database_whose_end_is_not_stored_is_not_said_to_be_undone<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let client = asks(shop.one.address, "/slow-mails", "idempotency-key: k\r\n", "").await;
    shop.one.sees(Event::Entered).await;
    shop.cluster.psql("DROP TABLE latchwork.idempotency").unwrap();
    shop.one.lets_go(1);
    let answer = client.answer().await;
    is_problem(&answer, 500, "transaction-unknown");
    assert_eq!(answer.header("retry-after"), None);
    shop.close().await;
}

async fn without_the_table_requests_are_refused_in_time_and_nothing_else_is<S: Server>() {
    let shop = Shop::open::<S>().await;
    shop.cluster.psql("DROP TABLE latchwork.idempotency").unwrap();
    is_problem(&post(shop.one.address, "/payments", "k", "").await, 503, "unavailable");
    let free = Client::asks(shop.one.address, "GET /free", "connection: close\r\n").await;
    assert_eq!(free.answer().await.status(), 200);
    shop.close().await;
}

on_each_framework!(
    crate::http::idempotency::servers:
    who_repeats_a_request_is_given_the_first_response_and_nothing_is_done_again,
    of_many_at_once_with_one_key_one_is_carried_out,
    a_key_with_another_request_is_refused_and_other_users_and_routes_have_keys_of_their_own,
    a_request_without_a_proper_key_is_refused_unless_keys_are_optional,
    a_request_in_flight_is_refused_and_its_client_may_leave,
    a_handler_that_is_cancelled_leaves_nothing_and_the_retry_runs_at_once,
    the_servers_end_of_the_session_takes_the_claim_along,
    what_does_not_succeed_is_rolled_back_and_runs_again,
    a_response_that_is_too_large_or_a_stream_arrives_whole_and_is_not_made_twice,
    a_body_over_the_cap_is_refused_however_it_is_sent_and_one_at_the_cap_arrives,
    work_outside_the_database_is_done_once_and_nobody_guesses_how_it_ended,
    a_record_that_has_expired_is_not_replayed_and_is_swept,
    a_sweep_deletes_all_that_has_expired,
    who_repeats_work_outside_the_database_at_once_with_others_is_given_the_response,
    work_outside_the_database_whose_end_is_not_stored_is_not_said_to_be_undone,
    without_the_table_requests_are_refused_in_time_and_nothing_else_is,
);
