//! Who is let in.

use std::{convert::Infallible, time::Duration};

use axum::body::Body;
use http::{Method, Request};
use latchwork_tower::{
    LockMode,
    key::{header, segment},
};
use tokio::time::{Instant, sleep};
use tokio_test::{assert_pending, assert_ready_ok};
use tower::{Layer as _, ServiceExt, service_fn};
use tower_test::mock;

use super::{
    answer,
    database::{Count, Database, Says},
    keyed, layer, problem, read, request,
};
use crate::support::{Event, in_time, stage};

#[tokio::test]
async fn others_are_refused_until_the_transaction_has_ended() {
    let database = Database::default();
    let (stage, mut watcher) = stage();
    let service = keyed(&database, ("order", segment(0)))
        .retry_after(Duration::from_secs(7))
        .layer(service_fn(move |_: Request<Body>| {
            let stage = stage.clone();
            async move {
                stage.play().await;
                Ok::<_, Infallible>(answer(200, &[]))
            }
        }));
    let of_order = |path| Request::post(path).body(Body::empty()).unwrap();
    let first = tokio::spawn(service.clone().oneshot(of_order("/1")));
    watcher.sees(Event::Entered).await;
    let refused = service.clone().oneshot(of_order("/1")).await.unwrap();
    assert_eq!(refused.headers()["retry-after"], "7");
    let (status, body) = read(Ok(refused)).await;
    assert_eq!(status, 409);
    assert!(body.contains(&problem("lock-busy")), "{body}");
    watcher.lets_go(2);
    assert_eq!(read(service.clone().oneshot(of_order("/2")).await).await.0, 200);
    assert_eq!(read(in_time(first).await.unwrap()).await.0, 200);
    watcher.lets_go(1);
    assert_eq!(read(service.oneshot(of_order("/1")).await).await.0, 200);
    assert_eq!(database.count().committed, 3);
}

#[tokio::test]
async fn a_database_that_is_down_is_503_and_the_handler_does_not_run() {
    for says in [Says::Unavailable, Says::Other, Says::Aborted] {
        let database = Database::default().begins(says);
        let service = layer(&database).layer(service_fn(async |_: Request<Body>| -> Result<_, Infallible> {
            panic!("the handler runs without its transaction");
            #[expect(unreachable_code, reason = "it gives the type")]
            Ok(answer(200, &[]))
        }));
        let (status, body) = read(service.oneshot(request()).await).await;
        assert_eq!(status, 503, "{says:?}");
        assert!(body.contains(&problem("unavailable")), "{body}");
        assert_eq!(database.count(), Count::NONE);
    }
}

#[tokio::test(start_paused = true)]
async fn a_database_that_does_not_answer_is_503_after_the_limit() {
    let database = Database::default().begins(Says::Nothing);
    let handler = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(answer(200, &[])));
    for (wait, limit) in [(None, 300), (Some(Duration::from_secs(2)), 2_300)] {
        let mut layer = layer(&database).answer_within(Duration::from_millis(300));
        if let Some(wait) = wait {
            layer = layer.wait(wait);
        }
        let begun = Instant::now();
        assert_eq!(read(layer.layer(handler).oneshot(request()).await).await.0, 503);
        let limit = Duration::from_millis(limit);
        assert!(
            (limit..limit + Duration::from_millis(50)).contains(&begun.elapsed()),
            "{:?}",
            begun.elapsed()
        );
    }
}

#[tokio::test]
async fn being_ready_is_the_inner_services_affair_and_the_readied_service_is_called() {
    let database = Database::default();
    let (service, mut handle) = mock::pair::<Request<Body>, http::Response<Body>>();
    handle.allow(0);
    let mut service = mock::Spawn::new(layer(&database).layer(service));
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.poll_ready());
    assert_eq!(database.asked(), 0);
    let answers = async {
        let (_, reply) = handle.next_request().await.unwrap();
        reply.send_response(answer(200, &[]));
    };
    // The mock panics when a clone of it is called that was not ready.
    let (answered, ()) = in_time(async { tokio::join!(service.call(request()), answers) }).await;
    assert_eq!(answered.unwrap().status(), 200);
    assert_eq!(database.count(), Count::COMMITTED);
    assert_pending!(service.poll_ready());
}

#[tokio::test]
async fn preflights_and_requests_without_a_key_pass_without_a_transaction() {
    let database = Database::default();
    let handler = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(answer(200, &[])));
    let by_header = keyed(&database, header("x-key").optional());
    let preflight = || {
        Request::builder()
            .method(Method::OPTIONS)
            .header("origin", "https://a.example")
            .header("access-control-request-method", "POST")
            .body(Body::empty())
            .unwrap()
    };
    assert_eq!(read(by_header.layer(handler).oneshot(request()).await).await.0, 200);
    let layer = layer(&database).mode(LockMode::ByMethod);
    assert_eq!(
        read(layer.clone().layer(handler).oneshot(preflight()).await).await.0,
        200
    );
    assert_eq!(database.asked(), 0);
    let all = layer.include_preflights().layer(handler);
    assert_eq!(read(all.oneshot(preflight()).await).await.0, 200);
    assert_eq!(database.count(), Count::COMMITTED);
    let bad = keyed(&database, header("x-key")).layer(handler);
    assert_eq!(read(bad.oneshot(request()).await).await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_comes_after_the_limit_is_rolled_back() {
    let database = Database::default().begins(Says::Late);
    let handler = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(answer(200, &[])));
    let hurried = layer(&database)
        .answer_within(Duration::from_millis(300))
        .layer(handler);
    assert_eq!(read(hurried.oneshot(request()).await).await.0, 503);
    assert_eq!(database.count(), Count::NONE);
    in_time(async {
        while database.count() != Count::ROLLED_BACK {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
