//! A lock in the transaction of a layer outside.

use std::{convert::Infallible, future::pending, time::Duration};

use axum::{Router, body::Body, routing::post};
use http::Request;
use latchwork_core::Key;
use tokio::time::{Instant, timeout};
use tower::{Layer as _, ServiceExt, service_fn};

use super::{
    Layer, LockedTx, answer,
    database::{Count, Database},
    keyed, layer, problem, read, request,
};

const INNER: Key = Key::bigint(2);

fn inner(database: &Database) -> Layer {
    keyed(database, INNER).join_open()
}

async fn post_to(database: &Database, inner: Layer) -> (u16, String) {
    let handler = |tx: LockedTx| async move { drop(tx) };
    let app = Router::new().route("/", post(handler).layer((layer(database), inner)));
    read(app.oneshot(request()).await).await
}

#[tokio::test]
async fn two_layers_are_one_transaction_with_two_locks() {
    let database = Database::default();
    assert_eq!(post_to(&database, inner(&database)).await.0, 200);
    assert_eq!((database.count(), database.asked()), (Count::COMMITTED, 1));
}

#[tokio::test]
async fn what_the_inner_layer_does_not_commit_the_outer_does_not_either() {
    let database = Database::default();
    assert_eq!(post_to(&database, inner(&database).rollback_only()).await.0, 200);
    assert_eq!((database.count(), database.asked()), (Count::ROLLED_BACK, 1));
}

/// As where a time limit between the layers answers in the place of what it has stopped.
#[tokio::test]
async fn what_is_dropped_midway_inside_is_not_committed_by_the_outer_layer() {
    let database = Database::default();
    let stops = |inner: Layer| {
        service_fn(move |request: Request<Body>| {
            let never = service_fn(|_: Request<Body>| pending::<Result<http::Response<Body>, Infallible>>());
            let midway = inner.layer(never).oneshot(request);
            async move {
                let midway = timeout(Duration::from_millis(50), midway).await;
                assert!(midway.is_err(), "it should be at its handler");
                Ok::<_, Infallible>(answer(200, &[]))
            }
        })
    };
    let service = layer(&database).layer(stops(inner(&database)));
    assert_eq!(read(service.oneshot(request()).await).await.0, 200);
    assert_eq!((database.count(), database.asked()), (Count::ROLLED_BACK, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_others_have_is_409_after_its_limit_and_rolls_back() {
    let database = Database::default();
    let held = latchwork_http::tx::TxRequest::new(INNER);
    let held = latchwork_tower::TxProvider::begin(&database, held)
        .await
        .unwrap()
        .unwrap();
    for limit in [0, 200] {
        let begun = Instant::now();
        let limit = Duration::from_millis(limit);
        let (status, body) = post_to(&database, inner(&database).wait(limit)).await;
        assert_eq!(status, 409);
        assert!(body.contains(&problem("lock-busy")), "{body}");
        assert!(
            (limit..limit + Duration::from_millis(30)).contains(&begun.elapsed()),
            "{:?}",
            begun.elapsed()
        );
    }
    assert_eq!(
        database.count(),
        Count {
            open: 1,
            rolled_back: 2,
            ..Count::NONE
        }
    );
    let waits = tokio::spawn({
        let database = database.clone();
        async move {
            post_to(&database, inner(&database).wait(Duration::from_secs(5)))
                .await
                .0
        }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(held);
    assert_eq!(waits.await.unwrap(), 200);
}

#[tokio::test]
async fn without_a_transaction_to_join_the_service_is_set_up_wrong() {
    let database = Database::default();
    let handler = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(answer(200, &[])));
    let (status, body) = read(inner(&database).layer(handler).oneshot(request()).await).await;
    assert_eq!(status, 500);
    assert!(body.contains("no layer outside has opened a transaction"), "{body}");
    assert_eq!(database.asked(), 0);
}
