//! Who may have the transaction.

use std::convert::Infallible;

use axum::{
    Router,
    body::Body,
    extract::Request,
    middleware::{Next, from_fn},
    response::Response,
    routing::post,
};
use latchwork_tower::{TxProvider, tx::CheckOutError};
use tower::{Layer as _, ServiceExt, service_fn};

use super::{
    LockedTx, answer,
    database::{Count, Database},
    layer, problem, read, request,
};

async fn post_to(app: Router) -> (u16, String) {
    read(app.oneshot(request()).await).await
}

#[tokio::test]
async fn a_handler_works_on_its_transaction() {
    let database = Database::default();
    let handler = |mut tx: LockedTx| async move {
        let row = Database::query(&mut tx, "SELECT 'it'", &[]).await.unwrap().unwrap();
        String::from_utf8(row[0].as_ref().unwrap().to_vec()).unwrap()
    };
    let app = Router::new().route("/", post(handler).layer(layer(&database)));
    assert_eq!(post_to(app).await, (200, "SELECT 'it'".to_owned()));
    assert_eq!(database.count(), Count::COMMITTED);
}

#[tokio::test]
async fn a_middleware_and_the_handler_have_it_one_after_the_other() {
    let database = Database::default();
    let around = from_fn(|tx: LockedTx, request: Request, next: Next| async move {
        drop(tx);
        let slot = request.extensions().clone();
        let response: Response = next.run(request).await;
        // And again after the handler.
        drop(LockedTx::take_from(&slot).unwrap().unwrap());
        response
    });
    let app = Router::new().route("/", post(|_: LockedTx| async {}).layer((layer(&database), around)));
    assert_eq!(post_to(app).await.0, 200);
    assert_eq!(database.count(), Count::COMMITTED);
}

#[tokio::test]
async fn whoever_asks_for_it_while_another_has_it_is_told_so() {
    let database = Database::default();
    let around = from_fn(|tx: LockedTx, request: Request, next: Next| async move {
        let response: Response = next.run(request).await;
        drop(tx);
        response
    });
    let apps = [
        Router::new().route(
            "/",
            post(|_: LockedTx| async {}).layer((layer(&database), around.clone())),
        ),
        Router::new().route(
            "/",
            post(|_: Option<LockedTx>| async {}).layer((layer(&database), around)),
        ),
        Router::new().route("/", post(|_: LockedTx, _: LockedTx| async {}).layer(layer(&database))),
    ];
    for app in apps {
        let (status, body) = post_to(app).await;
        assert_eq!(status, 500);
        assert!(
            body.contains(&problem("transaction-in-use")) && body.contains("drop the first LockedTx"),
            "{body}"
        );
    }
    assert_eq!(
        database.count(),
        Count {
            rolled_back: 3,
            ..Count::NONE
        }
    );
}

#[tokio::test]
async fn a_handler_without_a_layer_is_told_what_is_missing() {
    let (status, body) = post_to(Router::new().route("/", post(|_: LockedTx| async {}))).await;
    assert_eq!(status, 500);
    assert!(body.contains("TxLockLayer"), "{body}");
    let maybe = |tx: Option<LockedTx>| async move { assert!(tx.is_none()) };
    assert_eq!(post_to(Router::new().route("/", post(maybe))).await.0, 200);
}

#[tokio::test]
async fn nobody_gets_it_after_the_end() {
    let database = Database::default();
    let (to, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let handler = service_fn(move |request: Request<Body>| {
        to.send(request.extensions().clone()).unwrap();
        async { Ok::<_, Infallible>(answer(200, &[])) }
    });
    assert_eq!(
        read(layer(&database).layer(handler).oneshot(request()).await).await.0,
        200
    );
    let extensions = seen.recv().await.unwrap();
    assert_eq!(LockedTx::take_from(&extensions).unwrap_err(), CheckOutError::Ended);
    assert_eq!(database.count(), Count::COMMITTED);
}
