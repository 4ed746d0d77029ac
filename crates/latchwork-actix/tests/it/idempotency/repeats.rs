//! Who repeats a request, and who has another.

use std::net::SocketAddr;

use actix_web::{App, HttpResponse, HttpServer, web};
use latchwork_actix::{SetupError, TxProvider};
use latchwork_core::Namespace;
use latchwork_harness::http::{Event, ask, ask_with, stage};

use super::{Middleware, asks, is_problem, is_replayed, middleware, post, send};
use crate::{
    database::{Database, WORK},
    support::{LockedTx, serve, start},
};

/// Works in its transaction, and answers with the body.
async fn pay(mut tx: LockedTx, body: web::Bytes) -> HttpResponse {
    Database::query(&mut tx, WORK, &[]).await.unwrap();
    HttpResponse::Created()
        .insert_header(("location", "/payments/7"))
        .insert_header(("set-cookie", "session=1"))
        .insert_header(("x-kept", "too"))
        .content_type("application/x-echo")
        .body(body)
}

fn served(middleware: Middleware) -> SocketAddr {
    serve(move |routes| {
        for path in ["/payments", "/refunds/{id}"] {
            let resource = web::resource(path).wrap(middleware.clone());
            let always = web::get().to(|tx: Option<LockedTx>| async move {
                assert!(tx.is_none());
                "without"
            });
            routes.service(resource.route(web::post().to(pay)).route(always));
        }
    })
}

#[actix_web::test]
async fn who_repeats_a_request_is_given_the_first_response_and_nothing_is_done_again() {
    let database = Database::default();
    let server = served(middleware(&database).keep_header("x-kept").unwrap());
    let first = post(server, "/payments", "k-1", "{\"amount\": 5}").await;
    assert_eq!((first.status(), first.body()), (201, "{\"amount\": 5}"));
    assert_eq!(first.header("set-cookie"), Some("session=1"));
    assert!(!is_replayed(&first));
    for key in ["k-1", "\"k-1\""] {
        let again = post(server, "/payments", key, "{\"amount\": 5}").await;
        assert_eq!((again.status(), again.body()), (201, "{\"amount\": 5}"));
        assert!(is_replayed(&again));
        assert_eq!(again.header("location"), Some("/payments/7"));
        assert_eq!(again.header("content-type"), Some("application/x-echo"));
        assert_eq!(again.header("x-kept"), Some("too"));
        assert_eq!(again.header("set-cookie"), None);
        assert_eq!(again.header("content-length"), Some("13"));
    }
    assert_eq!(database.work(), 1);
}

#[actix_web::test]
async fn of_many_at_once_with_one_key_one_is_carried_out_over_workers_and_instances() {
    let database = Database::default();
    let servers = [(); 2].map(|()| {
        let middleware = middleware(&database);
        let app = move || {
            let resource = web::resource("/payments").wrap(middleware.clone());
            App::new().service(resource.route(web::post().to(pay)))
        };
        start!(HttpServer::new(app).workers(4))
    });
    for round in 0..5 {
        let key = format!("round-{round}");
        let requests = (0..32).map(|at| post(servers[at % 2], "/payments", &key, "x"));
        let mut carried_out = 0;
        for answer in futures_util::future::join_all(requests).await {
            match answer.status() {
                201 => carried_out += usize::from(!is_replayed(&answer)),
                _ => is_problem(&answer, 409, "idempotency-in-flight"),
            }
        }
        assert_eq!((carried_out, database.work()), (1, round + 1));
        assert!(is_replayed(&post(servers[0], "/payments", &key, "x").await));
    }
}

#[actix_web::test]
async fn a_key_with_another_request_is_refused_and_other_users_and_routes_have_keys_of_their_own() {
    let database = Database::default();
    let server = served(middleware(&database));
    assert_eq!(post(server, "/refunds/1?now", "k", "one").await.status(), 201);
    for (target, body) in [
        ("/refunds/1?now", "two"),
        ("/refunds/1?later", "one"),
        ("/refunds/2?now", "one"),
    ] {
        is_problem(&post(server, target, "k", body).await, 422, "idempotency-mismatch");
    }
    let typed = "idempotency-key: k\r\nx-user: ann\r\ncontent-type: text/plain\r\n";
    is_problem(
        &send(server, "POST /refunds/1?now", typed, "one").await,
        422,
        "idempotency-mismatch",
    );
    assert_eq!(database.work(), 1);
    assert!(!is_replayed(&post(server, "/payments", "k", "one").await));
    let bob = "idempotency-key: k\r\nx-user: bob\r\n";
    let other = send(server, "POST /refunds/1?now", bob, "one").await;
    assert_eq!((other.status(), is_replayed(&other)), (201, false));
    assert_eq!(database.work(), 3);
}

#[actix_web::test]
async fn a_request_without_a_usable_key_is_refused_and_other_methods_pass() {
    let database = Database::default();
    let server = served(middleware(&database));
    for keys in [
        "",
        "idempotency-key: \"\r\n",
        "idempotency-key: a\r\nidempotency-key: b\r\n",
    ] {
        let answer = send(server, "POST /payments", &format!("x-user: ann\r\n{keys}"), "x").await;
        is_problem(&answer, 400, "bad-idempotency-key");
    }
    is_problem(
        &send(server, "POST /payments", "idempotency-key: k\r\n", "x").await,
        400,
        "bad-key",
    );
    assert_eq!(ask(server, "GET /payments").await.body(), "without");
    assert_eq!(database.asked(), 0);

    let server = served(middleware(&database).optional().methods(["GET"]));
    assert_eq!(ask(server, "GET /payments").await.body(), "without");
    // A handler that asks for the transaction has none.
    assert_eq!(
        send(server, "POST /payments", "x-user: ann\r\n", "x").await.status(),
        500
    );
    assert_eq!(database.asked(), 0);
}

#[actix_web::test]
async fn one_who_asks_while_the_first_is_worked_on_is_refused_and_replayed_after() {
    let database = Database::default();
    let (stage, mut watcher) = stage();
    let middleware = middleware(&database);
    let server = serve(move |routes| {
        let stage = stage.clone();
        let slow = move |mut tx: LockedTx| {
            let stage = stage.clone();
            async move {
                Database::query(&mut tx, WORK, &[]).await.unwrap();
                stage.play().await;
                "done"
            }
        };
        routes.service(web::resource("/").wrap(middleware.clone()).route(web::post().to(slow)));
    });
    let first = asks(server, "POST /", "idempotency-key: k\r\nx-user: ann\r\n", "").await;
    watcher.sees(Event::Entered).await;
    let refused = post(server, "/", "k", "").await;
    is_problem(&refused, 409, "idempotency-in-flight");
    assert_eq!(refused.header("retry-after"), Some("1"));
    watcher.lets_go(1);
    assert_eq!(first.answer().await.status(), 200);
    assert!(is_replayed(&post(server, "/", "k", "").await));
    assert_eq!(database.work(), 1);
}

#[actix_web::test]
async fn a_preflight_passes() {
    let database = Database::default();
    let all = middleware(&database).methods(["OPTIONS"]);
    let server = serve(move |routes| {
        let route = web::route().to(|| async { "allowed" });
        routes.service(web::resource("/").wrap(all.clone()).route(route));
    });
    let preflight = "origin: https://a.example\r\naccess-control-request-method: POST\r\n";
    assert_eq!(ask_with(server, "OPTIONS /", preflight).await.body(), "allowed");
    is_problem(&ask(server, "OPTIONS /").await, 400, "bad-idempotency-key");
}

#[test]
fn cookies_cannot_be_kept() {
    let error = middleware(&Database::default()).keep_header("Set-Cookie").unwrap_err();
    assert!(matches!(error, SetupError::KeptHeader { .. }), "{error:?}");
}

#[actix_web::test]
async fn services_with_namespaces_of_their_own_share_no_key() {
    let database = Database::default();
    for name in ["shop", "bank"] {
        let namespace = Namespace::new(name).unwrap();
        let server = served(middleware(&database).namespace(namespace));
        assert!(!is_replayed(&post(server, "/payments", "k", "one").await));
        assert!(is_replayed(&post(server, "/payments", "k", "one").await));
    }
    assert_eq!(database.work(), 2);
}
