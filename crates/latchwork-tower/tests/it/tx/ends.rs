//! Commit or rollback, and what the client is told of it.

use std::{convert::Infallible, future::ready, sync::Arc, time::Duration};

use axum::body::Body;
use http::{Request, Response, StatusCode};
use latchwork_tower::{OnDisconnect, TxLockService, tx::ends_well};
use tokio::{sync::Semaphore, time::Instant};
use tower::{Layer as _, Service, ServiceExt, service_fn};

use super::{
    Layer, LockedTx, answer,
    database::{Count, Database, Says},
    layer, problem, read, request,
};

type Headers = &'static [(&'static str, &'static str)];

fn answering(
    layer: &Layer,
    status: u16,
    headers: Headers,
) -> impl Service<Request<Body>, Response = Response<latchwork_tower::PolicyBody<Body>>, Error = Infallible> + Clone {
    layer.layer(service_fn(move |_: Request<Body>| {
        ready(Ok::<_, Infallible>(answer(status, headers)))
    }))
}

#[tokio::test]
async fn a_response_says_whether_its_work_is_stored() {
    const NONE: Headers = &[];
    for (status, headers, commits) in [
        (101, NONE, true),
        (200, NONE, true),
        (201, NONE, true),
        (204, NONE, true),
        (302, NONE, true),
        (399, NONE, true),
        (400, NONE, false),
        (404, NONE, false),
        (409, NONE, false),
        (499, NONE, false),
        (500, NONE, false),
        (503, NONE, false),
        (999, NONE, false),
        (200, &[("grpc-status", "0")], true),
        (200, &[("grpc-status", "5")], false),
        (200, &[("grpc-status", "00")], false),
        (200, &[("grpc-status", "")], false),
        (500, &[("grpc-status", "0")], false),
    ] {
        for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
            let database = Database::default();
            let layer = layer(&database).on_disconnect(on_disconnect);
            let (seen, body) = read(answering(&layer, status, headers).oneshot(request()).await).await;
            let ended = if commits { Count::COMMITTED } else { Count::ROLLED_BACK };
            assert_eq!(database.count(), ended, "{status} {headers:?}");
            assert_eq!((seen, &*body), (status, "the handler's"));
        }
    }
}

#[tokio::test]
async fn a_predicate_and_a_dry_run_say_otherwise() {
    let database = Database::default();
    let keeps_404 = layer(&database).commit_when(|response| response.status() == 404 || ends_well(response));
    for (status, ended) in [(404, 1), (200, 2), (400, 2)] {
        read(answering(&keeps_404, status, &[]).oneshot(request()).await).await;
        assert_eq!(database.count().committed, ended, "{status}");
    }
    let database = Database::default();
    let dry_run = layer(&database).rollback_only();
    let answered = read(answering(&dry_run, 200, &[]).oneshot(request()).await).await;
    assert_eq!((answered.0, database.count()), (200, Count::ROLLED_BACK));
}

#[tokio::test]
async fn a_handler_can_have_its_work_undone_and_say_200() {
    let database = Database::default();
    let service = layer(&database).layer(service_fn(async |request: Request<Body>| {
        let tx = LockedTx::take_from(request.extensions()).unwrap().unwrap();
        LockedTx::rollback_only(&tx);
        Ok::<_, Infallible>(answer(200, &[]))
    }));
    assert_eq!(read(service.oneshot(request()).await).await.0, 200);
    assert_eq!(database.count(), Count::ROLLED_BACK);
}

#[tokio::test]
async fn a_commit_that_failed_is_never_the_handlers_200() {
    for (says, status, kind) in [
        (Says::Aborted, 500, "transaction-failed"),
        (Says::Other, 500, "transaction-failed"),
        (Says::Unknown, 500, "transaction-unknown"),
        (Says::Unavailable, 503, "transaction-lost"),
    ] {
        for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
            let database = Database::default().commits(says);
            let layer = layer(&database).on_disconnect(on_disconnect);
            let answered = answering(&layer, 200, &[]).oneshot(request()).await.unwrap();
            assert_eq!(answered.headers()["content-type"], "application/problem+json");
            let (seen, body) = read(Ok(answered)).await;
            assert_eq!(seen, status, "{says:?}");
            assert!(body.contains(&problem(kind)), "{says:?} {body}");
            assert_eq!(database.count().committed, 0);
        }
    }
}

#[tokio::test]
async fn a_rollback_that_failed_leaves_the_handlers_answer_alone() {
    let database = Database::default().rolls_back(Says::Unavailable);
    let answered = read(answering(&layer(&database), 404, &[]).oneshot(request()).await).await;
    assert_eq!(answered, (404, "the handler's".to_owned()));
    assert_eq!(
        database.count(),
        Count {
            closed: 1,
            ..Count::NONE
        }
    );
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_an_answer_is_unknown_after_the_limit() {
    let database = Database::default().commits(Says::Nothing);
    let layer = layer(&database).answer_within(Duration::from_millis(300));
    let begun = Instant::now();
    let (status, body) = read(answering(&layer, 200, &[]).oneshot(request()).await).await;
    assert_eq!(status, 500);
    assert!(body.contains(&problem("transaction-unknown")), "{body}");
    assert!(begun.elapsed() < Duration::from_millis(400), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_replaced_answer_is_sent_for_a_commit_that_failed() {
    let database = Database::default().commits(Says::Aborted);
    let layer = layer(&database).on_reject(|rejection, mut response| {
        assert_eq!(rejection.status(), 500);
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        response
    });
    assert_eq!(read(answering(&layer, 200, &[]).oneshot(request()).await).await.0, 418);
}

#[tokio::test]
async fn the_inner_services_errors_pass_and_roll_back() {
    let database = Database::default();
    let failing = service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("as the test wants"));
    let answered = layer(&database).layer(failing).oneshot(request()).await;
    assert_eq!(answered.err(), Some("as the test wants"));
    assert_eq!(database.count(), Count::ROLLED_BACK);
}

#[tokio::test]
async fn a_panic_rolls_back_and_goes_on_its_way() {
    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        let database = Database::default();
        let service =
            layer(&database)
                .on_disconnect(on_disconnect)
                .layer(service_fn(async |request: Request<Body>| {
                    let _tx = LockedTx::take_from(request.extensions()).unwrap().unwrap();
                    if request.uri() == "/" {
                        panic!("as the test wants");
                    }
                    Ok::<_, Infallible>(answer(200, &[]))
                }));
        let panicked = tokio::spawn(service.oneshot(request())).await.unwrap_err();
        assert!(panicked.is_panic());
        assert_eq!(database.settled().await, Count::ROLLED_BACK, "{on_disconnect:?}");
    }
}

#[tokio::test]
async fn a_transaction_that_a_task_still_has_is_500_and_rolled_back_when_it_comes_back() {
    for (on_disconnect, status) in [(OnDisconnect::Cancel, 200), (OnDisconnect::Complete, 404)] {
        let database = Database::default();
        let go = Arc::new(Semaphore::new(0));
        let service = layer(&database).on_disconnect(on_disconnect).layer(service_fn({
            let go = Arc::clone(&go);
            move |request: Request<Body>| {
                let go = Arc::clone(&go);
                async move {
                    let tx = LockedTx::take_from(request.extensions()).unwrap().unwrap();
                    tokio::spawn(async move {
                        go.acquire().await.unwrap().forget();
                        drop(tx);
                    });
                    Ok::<_, Infallible>(answer(status, &[]))
                }
            }
        }));
        let (seen, body) = read(service.clone().oneshot(request()).await).await;
        assert_eq!(seen, 500);
        assert!(body.contains(&problem("transaction-in-use")), "{body}");
        assert_eq!(database.count(), Count { open: 1, ..Count::NONE });
        // It still holds its lock.
        assert_eq!(read(service.oneshot(request()).await).await.0, 409);
        go.add_permits(1);
        assert_eq!(database.settled().await, Count::ROLLED_BACK);
    }
}

#[test]
fn a_service_and_its_layer_show_what_is_in_them() {
    let database = Database::default();
    let mut service: TxLockService<_, Database> = layer(&database).layer("inner");
    *service.get_mut() = "other";
    assert_eq!(*service.get_ref(), "other");
    assert!(format!("{service:?} {:?}", service.layer()).contains("TxLockPolicy"));
    assert_eq!(service.into_inner(), "other");
}
