//! What is kept, and what of requests whose clients leave.

use std::{net::SocketAddr, time::Duration};

use actix_web::{
    HttpResponse,
    body::BoxBody,
    dev::ServiceResponse,
    error::ErrorBadRequest,
    http::StatusCode,
    middleware::{Next, from_fn},
    rt, web,
};
use latchwork_actix::{LockMiddleware, OnDisconnect, TxProvider};
use latchwork_core::{Key, Locks, memory::MemoryServer};
use latchwork_harness::http::{Event, Leave, Stage, Watcher, stage};
use tokio::sync::oneshot;

use super::{Middleware, asks, is_problem, is_replayed, middleware, post};
use crate::{
    database::{Count, Database, Says, WORK},
    support::{LockedTx, serve},
};

const KEY: Key = Key::bigint(1);

/// Works, and answers with the status in the path.
async fn status(path: web::Path<u16>, tx: Option<LockedTx>) -> HttpResponse {
    if let Some(mut tx) = tx {
        Database::query(&mut tx, WORK, &[]).await.unwrap();
    }
    HttpResponse::build(StatusCode::from_u16(*path).unwrap()).body("the handler's")
}

fn answers(middleware: Middleware) -> SocketAddr {
    serve(move |routes| {
        let resource = web::resource("/{status}").wrap(middleware.clone());
        routes.service(resource.route(web::post().to(status)));
    })
}

#[actix_web::test]
async fn a_response_of_failure_is_not_kept_and_its_work_is_undone() {
    let database = Database::default();
    let server = answers(middleware(&database));
    for path in ["/400", "/404", "/500"] {
        for _ in 0..2 {
            let answer = post(server, path, "k", "").await;
            assert_eq!(
                (answer.status(), answer.body()),
                (path[1..].parse().unwrap(), "the handler's")
            );
            assert!(!is_replayed(&answer));
        }
    }
    assert_eq!(database.work(), 0);
    let keeps_404 = answers(middleware(&database).commit_when(|response| response.status() == 404));
    for (path, replayed) in [("/404", true), ("/200", false)] {
        for again in [false, true] {
            let answer = post(keeps_404, path, &path[1..], "").await;
            assert_eq!(answer.body(), "the handler's");
            assert_eq!(is_replayed(&answer), again && replayed, "{path}");
        }
        assert_eq!(database.work(), 1);
    }
}

#[actix_web::test]
async fn an_error_of_a_middleware_inside_is_not_kept() {
    let database = Database::default();
    let outer = middleware(&database);
    let server = serve(move |routes| {
        let fails = from_fn(async |_, _: Next<BoxBody>| Err::<ServiceResponse, _>(ErrorBadRequest("no")));
        routes.service(web::resource("/").wrap(fails).wrap(outer.clone()));
    });
    for _ in 0..2 {
        let answer = post(server, "/", "k", "").await;
        assert_eq!(
            (answer.status(), answer.body(), is_replayed(&answer)),
            (400, "no", false)
        );
    }
    assert_eq!((database.count().rolled_back, database.count().open), (2, 0));
}

/// Whoever works outside of the database and is stopped midway may have done it.
#[actix_web::test]
async fn work_outside_the_database_that_failed_on_its_way_out_does_not_run_again() {
    let outer = middleware(&Database::default()).external(Locks::in_memory());
    let server = serve(move |routes| {
        let fails = from_fn(async |_, _: Next<BoxBody>| Err::<ServiceResponse, _>(ErrorBadRequest("no")));
        routes.service(web::resource("/").wrap(fails).wrap(outer.clone()));
    });
    assert_eq!(post(server, "/", "k", "").await.status(), 400);
    is_problem(&post(server, "/", "k", "").await, 409, "idempotency-unknown");

    let lost = MemoryServer::new();
    let outer = middleware(&Database::default()).external(Locks::in_memory());
    let lock = LockMiddleware::new(lost.locks(), KEY).unwrap();
    let (stage, mut watcher) = stage();
    let server = serve(move |routes| {
        let resource = web::resource("/").wrap(lock.clone()).wrap(outer.clone());
        routes
            .app_data(web::Data::new(stage.clone()))
            .service(resource.route(web::post().to(play)));
    });
    let first = asks(server, "POST /", HEADERS, "").await;
    watcher.sees(Event::Entered).await;
    lost.end_sessions();
    is_problem(&first.answer().await, 503, "lock-lost");
    is_problem(&post(server, "/", "k", "").await, 409, "idempotency-unknown");
}

#[actix_web::test]
async fn what_a_middleware_inside_answers_in_the_handlers_place_is_never_kept() {
    let database = Database::default();
    let locks = Locks::in_memory();
    let held = locks.try_acquire(KEY).await.unwrap();
    // Also where every answer is.
    let outer = middleware(&database).commit_when(|_| true);
    let lock = LockMiddleware::new(locks, KEY).unwrap();
    let server = serve(move |routes| {
        let resource = web::resource("/{status}").wrap(lock.clone()).wrap(outer.clone());
        routes.service(resource.route(web::post().to(status)));
    });
    for _ in 0..2 {
        is_problem(&post(server, "/500", "k", "").await, 409, "lock-busy");
    }
    drop(held);
    for replayed in [false, true] {
        let answer = post(server, "/500", "k", "").await;
        assert_eq!((answer.status(), is_replayed(&answer)), (500, replayed));
    }
    assert_eq!(database.work(), 1);
}

#[actix_web::test]
async fn a_response_that_could_not_be_kept_is_never_sent() {
    for (says, status, kind) in [
        (Says::Aborted, 500, "transaction-failed"),
        (Says::Unknown, 500, "transaction-unknown"),
        (Says::Unavailable, 503, "transaction-lost"),
        (Says::NotSetUp, 500, "transaction-failed"),
    ] {
        let database = Database::default().commits(says);
        let server = answers(middleware(&database).retry_after(Duration::from_secs(7)));
        let refused = post(server, "/201", "k", "").await;
        is_problem(&refused, status, kind);
        assert_eq!(refused.header("retry-after"), (status == 503).then_some("7"));
        let database = database.commits(Says::Yes);
        let again = post(server, "/201", "k", "").await;
        assert_eq!((again.status(), is_replayed(&again)), (201, false));
        assert_eq!(database.work(), 1);
    }
    for (says, status, kind) in [(Says::Unavailable, 503, "unavailable"), (Says::NotSetUp, 500, "setup")] {
        let server = answers(middleware(&Database::default().begins(says)));
        is_problem(&post(server, "/201", "k", "").await, status, kind);
    }
}

#[actix_web::test]
async fn a_transaction_that_is_still_in_use_at_the_end_is_500_and_nothing_is_kept() {
    let database = Database::default();
    let (to, holds) = std::sync::mpsc::channel();
    let outer = middleware(&database);
    let server = serve(move |routes| {
        let to = to.clone();
        let handler = move |tx: LockedTx| {
            let to = to.clone();
            async move {
                let (lets_go, go) = oneshot::channel::<()>();
                to.send(lets_go).unwrap();
                rt::spawn(async move {
                    let _ = go.await;
                    drop(tx);
                });
                "done"
            }
        };
        routes.service(web::resource("/").wrap(outer.clone()).route(web::post().to(handler)));
    });
    is_problem(&post(server, "/", "k", "").await, 500, "transaction-in-use");
    drop(holds.recv().unwrap());
    assert_eq!(database.settled().await.rolled_back, 1);
    // It runs again.
    is_problem(&post(server, "/", "k", "").await, 500, "transaction-in-use");
}

/// Works when it is let go.
async fn play(tx: Option<LockedTx>, stage: web::Data<Stage>) -> &'static str {
    stage.play().await;
    if let Some(mut tx) = tx {
        Database::query(&mut tx, WORK, &[]).await.unwrap();
    }
    "done"
}

fn played(middleware: Middleware) -> (SocketAddr, Watcher) {
    let (stage, watcher) = stage();
    let address = serve(move |routes| {
        let resource = web::resource("/").wrap(middleware.clone());
        routes
            .app_data(web::Data::new(stage.clone()))
            .service(resource.route(web::post().to(play)));
    });
    (address, watcher)
}

const HEADERS: &str = "idempotency-key: k\r\nx-user: ann\r\n";

#[actix_web::test]
async fn a_handler_whose_client_leaves_runs_to_its_end_and_its_response_is_there_for_who_asks_again() {
    let database = Database::default();
    let (server, mut watcher) = played(middleware(&database));
    let client = asks(server, "POST /", HEADERS, "").await;
    watcher.sees(Event::Entered).await;
    client.leave(Leave::Rst).await;
    is_problem(&post(server, "/", "k", "").await, 409, "idempotency-in-flight");
    watcher.lets_go(1);
    watcher.sees(Event::Done).await;
    database.settled().await;
    let again = post(server, "/", "k", "").await;
    assert_eq!((again.status(), again.body(), is_replayed(&again)), (200, "done", true));
    assert_eq!(database.work(), 1);
}

#[actix_web::test]
async fn a_handler_that_is_to_be_cancelled_leaves_nothing_behind() {
    let database = Database::default();
    let (server, mut watcher) = played(middleware(&database).on_disconnect(OnDisconnect::Cancel));
    let client = asks(server, "POST /", HEADERS, "").await;
    watcher.sees(Event::Entered).await;
    client.leave(Leave::Rst).await;
    watcher.sees(Event::Dropped).await;
    assert_eq!(database.settled().await, Count::ROLLED_BACK);
    watcher.lets_go(1);
    let again = post(server, "/", "k", "").await;
    assert_eq!((again.status(), is_replayed(&again), database.work()), (200, false, 1));
}

#[actix_web::test]
async fn a_handler_that_works_elsewhere_runs_once_and_one_that_was_cancelled_is_not_known_of() {
    let database = Database::default();
    let external = || middleware(&database).external(Locks::in_memory());
    let server = answers(external());
    // A failure takes the claim back.
    for _ in 0..2 {
        assert!(!is_replayed(&post(server, "/500", "k", "").await));
    }
    assert!(!is_replayed(&post(server, "/200", "l", "").await));
    assert!(is_replayed(&post(server, "/200", "l", "").await));

    let (server, mut watcher) = played(external().on_disconnect(OnDisconnect::Cancel));
    let client = asks(server, "POST /", HEADERS, "").await;
    watcher.sees(Event::Entered).await;
    is_problem(&post(server, "/", "k", "").await, 409, "idempotency-in-flight");
    client.leave(Leave::Rst).await;
    watcher.sees(Event::Dropped).await;
    is_problem(&post(server, "/", "k", "").await, 409, "idempotency-unknown");
    assert_eq!(database.work(), 0);
}
