//! Requests that are sent again.

use latchwork_harness::http::Client;

use super::{Shop, is_problem, post, send, servers::Server};

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

on_each_framework_and_library!(
    crate::http::idempotency::servers:
    who_repeats_a_request_is_given_the_first_response_and_nothing_is_done_again,
    of_many_at_once_with_one_key_one_is_carried_out,
    a_key_with_another_request_is_refused_and_other_users_and_routes_have_keys_of_their_own,
    a_request_without_a_proper_key_is_refused_unless_keys_are_optional,
);
