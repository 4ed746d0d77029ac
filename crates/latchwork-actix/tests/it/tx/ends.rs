//! Who is let in, commit or rollback, and what the client is told of it.

use actix_web::{
    App, HttpResponse, HttpServer,
    body::BoxBody,
    dev::ServiceResponse,
    error::ErrorBadRequest,
    middleware::{Next, from_fn},
    rt,
    test::{TestRequest, call_service, init_service},
    web,
};
use latchwork_actix::{
    OnDisconnect,
    key::{header, param},
    tx::ends_well,
};
use latchwork_harness::http::{Client, Event, Stage, ask, in_time, stage};
use tokio::sync::oneshot;

use super::{answered, keyed, middleware, post, problem};
use crate::{
    database::{Count, Database, Says},
    support::{LockedTx, serve, start},
};

#[actix_web::test]
async fn a_response_says_whether_its_work_is_stored() {
    for (answer, commits) in [
        ("200", true),
        ("201", true),
        ("302", true),
        ("399", true),
        ("400", false),
        ("404", false),
        ("409", false),
        ("500", false),
        ("503", false),
        ("200 0", true),
        ("200 5", false),
        ("200 00", false),
        ("500 0", false),
    ] {
        for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
            let database = Database::default();
            let middleware = middleware(&database).on_disconnect(on_disconnect);
            let (status, body) = answered(&middleware, answer, TestRequest::post()).await;
            let ended = if commits { Count::COMMITTED } else { Count::ROLLED_BACK };
            assert_eq!(database.count(), ended, "{answer}");
            assert_eq!((&*status.to_string(), &*body), (&answer[..3], "the handler's"));
        }
    }
}

#[actix_web::test]
async fn a_predicate_and_a_dry_run_say_otherwise() {
    let database = Database::default();
    let keeps_404 = middleware(&database).commit_when(|response| response.status() == 404 || ends_well(response));
    for (answer, ended) in [("404", 1), ("200", 2), ("400", 2)] {
        answered(&keeps_404, answer, TestRequest::post()).await;
        assert_eq!(database.count().committed, ended, "{answer}");
    }
    let database = Database::default();
    let dry_run = middleware(&database).rollback_only();
    let (status, _) = answered(&dry_run, "200", TestRequest::post()).await;
    assert_eq!((status, database.count()), (200, Count::ROLLED_BACK));
}

#[actix_web::test]
async fn a_commit_that_failed_is_never_the_handlers_200() {
    for (says, status, kind) in [
        (Says::Aborted, 500, "transaction-failed"),
        (Says::Unknown, 500, "transaction-unknown"),
        (Says::Unavailable, 503, "transaction-lost"),
    ] {
        for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
            let database = Database::default().commits(says);
            let middleware = middleware(&database).on_disconnect(on_disconnect);
            let (seen, body) = answered(&middleware, "200", TestRequest::post()).await;
            assert_eq!(seen, status, "{says:?}");
            assert!(body.contains(&problem(kind)), "{says:?} {body}");
            assert_eq!(database.count().committed, 0);
        }
    }
}

#[actix_web::test]
async fn a_database_that_is_down_is_503_and_the_handler_does_not_run() {
    let database = Database::default().begins(Says::Unavailable);
    let never = || async {
        panic!("the handler runs without its transaction");
        #[expect(unreachable_code, reason = "it gives the type")]
        "never"
    };
    let (status, body) = post!(App::new().wrap(middleware(&database)).route("/", web::post().to(never)));
    assert_eq!(status, 503);
    assert!(body.contains(&problem("unavailable")), "{body}");
    assert_eq!(database.count(), Count::NONE);
}

#[actix_web::test]
async fn an_error_and_a_panic_inside_roll_back() {
    let database = Database::default();
    // The error of a handler is a response by the time the middleware sees it.
    let fails = || async { Err::<HttpResponse, _>(ErrorBadRequest("no")) };
    let answer = post!(App::new().wrap(middleware(&database)).route("/", web::post().to(fails)));
    assert_eq!(answer, (400, "no".to_owned()));
    assert_eq!(database.count(), Count::ROLLED_BACK);

    let database = Database::default();
    let outer = middleware(&database);
    let server = serve(move |routes| {
        let fails = from_fn(async |_, _: Next<BoxBody>| Err::<ServiceResponse, _>(ErrorBadRequest("no")));
        routes.service(web::resource("/").wrap(fails).wrap(outer.clone()));
    });
    assert_eq!(ask(server, "POST /").await.status(), 400);
    assert_eq!(database.count(), Count::ROLLED_BACK);

    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        let database = Database::default();
        let middleware = middleware(&database).on_disconnect(on_disconnect);
        let panics = |_: LockedTx| async {
            panic!("as the test wants");
            #[expect(unreachable_code, reason = "it gives the type")]
            "never"
        };
        let app = init_service(App::new().wrap(middleware).route("/", web::post().to(panics))).await;
        let request = TestRequest::post().to_request();
        let ended = rt::spawn(async move { call_service(&app, request).await.status() });
        assert!(in_time(ended).await.unwrap_err().is_panic());
        assert_eq!(database.settled().await, Count::ROLLED_BACK, "{on_disconnect:?}");
    }
}

#[actix_web::test]
async fn a_transaction_that_is_still_in_use_at_the_end_is_500_and_rolled_back() {
    let database = Database::default();
    let (to, holds) = std::sync::mpsc::channel();
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
    let app = App::new()
        .wrap(middleware(&database))
        .route("/", web::post().to(handler));
    let (status, body) = post!(app);
    assert_eq!(status, 500);
    assert!(body.contains(&problem("transaction-in-use")), "{body}");
    assert_eq!(database.count().open, 1);
    drop(holds.recv().unwrap());
    assert_eq!(database.settled().await, Count::ROLLED_BACK);
}

#[actix_web::test]
async fn preflights_and_requests_without_a_key_pass_without_a_transaction() {
    let database = Database::default();
    let preflight = || {
        let request = TestRequest::with_uri("/").method(actix_web::http::Method::OPTIONS);
        let request = request.insert_header(("origin", "https://a.example"));
        request.insert_header(("access-control-request-method", "POST"))
    };
    let by_header = keyed(&database, header("x-key").optional());
    assert_eq!(answered(&by_header, "200", TestRequest::post()).await.0, 200);
    assert_eq!(answered(&middleware(&database), "200", preflight()).await.0, 200);
    assert_eq!(database.asked(), 0);
    let all = middleware(&database).include_preflights();
    assert_eq!(answered(&all, "200", preflight()).await.0, 200);
    assert_eq!(database.count(), Count::COMMITTED);
    let bad = keyed(&database, header("x-key"));
    assert_eq!(answered(&bad, "200", TestRequest::post()).await.0, 400);
}

async fn play(_: LockedTx, stage: web::Data<Stage>) -> &'static str {
    stage.play().await;
    "done"
}

#[actix_web::test]
async fn others_are_refused_over_four_workers_until_the_transaction_has_ended() {
    let database = Database::default();
    let (stage, mut watcher) = stage();
    let per_order = keyed(&database, ("order", param("id")));
    let app = move || {
        let resource = web::resource("/orders/{id}").wrap(per_order.clone());
        App::new()
            .app_data(web::Data::new(stage.clone()))
            .service(resource.route(web::post().to(play)))
    };
    let server = start!(HttpServer::new(app).workers(4));
    let first = Client::asks(server, "POST /orders/1", "connection: close\r\n").await;
    watcher.sees(Event::Entered).await;
    for _ in 0..8 {
        let refused = ask(server, "POST /orders/1").await;
        assert_eq!((refused.status(), refused.header("retry-after")), (409, Some("1")));
        assert_eq!(refused.header("content-type"), Some("application/problem+json"));
        assert!(refused.body().contains(&problem("lock-busy")), "{refused:?}");
    }
    watcher.lets_go(2);
    assert_eq!(ask(server, "POST /orders/2").await.status(), 200);
    assert_eq!(first.answer().await.status(), 200);
    watcher.lets_go(1);
    assert_eq!(ask(server, "POST /orders/1").await.status(), 200);
    assert_eq!((database.count().committed, database.count().open), (3, 0));
}
