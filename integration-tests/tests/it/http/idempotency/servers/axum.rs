use std::{convert::Infallible, sync::atomic::Ordering};

use ::axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use latchwork_postgres::transaction::{DeadpoolTx, PooledTx};
use latchwork_tower::{IdempotencyLayer, OnDisconnect, key::header};

use super::{CAP, PATIENT, Server, Service, insert, spawn};
use crate::http::servers::{Served, listener};

type LockedTx = latchwork_tower::LockedTx<PooledTx>;
type Layer = IdempotencyLayer<DeadpoolTx>;

pub(in super::super) enum Axum {}

impl Server for Axum {
    fn serve(service: Service) -> Served {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let app = app(service);
        let server = tokio::spawn(async move { ::axum::serve(listener, app).await.unwrap() });
        let stop = Box::pin(async move { server.abort() });
        Served { address, stop }
    }
}

fn app(service: Service) -> Router {
    let layer = || {
        Layer::new(service.pool.clone(), header("x-user").optional())
            .unwrap()
            .max_request_body(CAP)
            .max_response_body(CAP)
    };
    let leaves = layer().on_disconnect(OnDisconnect::Cancel);
    let external = layer()
        .external(service.locks.clone())
        .on_disconnect(OnDisconnect::Cancel);
    Router::new()
        .route("/payments", post(pay).get(|| async { "all of them" }).layer(layer()))
        .route("/payments/{id}/refund", post(pay).layer(layer()))
        .route("/slow", post(slow).layer(layer()))
        .route("/waits", post(slow).layer(layer().wait(PATIENT)))
        .route("/leaves", post(slow).layer(leaves.clone()))
        .route("/patient", post(pay).layer(layer().answer_within(PATIENT)))
        .route("/hasty", post(pay).layer(leaves))
        .route("/panics", post(panics).layer(layer()))
        .route("/spawned", post(spawned).layer(layer()))
        .route("/fails", post(fails).layer(layer()))
        .route("/deferred", post(deferred).layer(layer()))
        .route("/large", post(large).layer(layer()))
        .route("/stream", post(stream).layer(layer()))
        .route("/mails", post(mails).layer(external.clone()))
        .route("/slow-mails", post(slow_mails).layer(external))
        .route("/optional", post(|| async { "no key" }).layer(layer().optional()))
        .route("/free", get(|| async { "free" }))
        .with_state(service)
}

/// Stores a payment, and answers with the body that it was sent.
async fn pay(tx: LockedTx, body: Bytes) -> Response {
    let id = insert(&tx).await;
    let headers = [
        (header::LOCATION, format!("/payments/{id}")),
        (header::CONTENT_TYPE, "application/x-echo".to_owned()),
        (header::SET_COOKIE, "session=1".to_owned()),
    ];
    (StatusCode::CREATED, headers, body).into_response()
}

async fn slow(State(service): State<Service>, tx: LockedTx) -> String {
    let id = insert(&tx).await;
    service.stage.play().await;
    format!("payment {id}")
}

async fn panics(State(_): State<Service>, tx: LockedTx) {
    insert(&tx).await;
    panic!("as the test wants");
}

async fn spawned(State(service): State<Service>, tx: LockedTx) {
    spawn(service.stage, tx).await;
}

async fn fails(tx: LockedTx) -> StatusCode {
    insert(&tx).await;
    StatusCode::INTERNAL_SERVER_ERROR
}

/// Stores what the server refuses at COMMIT.
async fn deferred(tx: LockedTx) -> &'static str {
    tx.execute("INSERT INTO refunds VALUES (-1)", &[]).await.unwrap();
    "stored"
}

async fn large(tx: LockedTx) -> Vec<u8> {
    insert(&tx).await;
    vec![b'x'; CAP + 1]
}

async fn stream(tx: LockedTx) -> Body {
    insert(&tx).await;
    let parts = (0..3).map(|part| Ok::<_, Infallible>(format!("part {part}\n")));
    Body::from_stream(futures_util::stream::iter(parts))
}

async fn mails(State(service): State<Service>, body: Bytes) -> StatusCode {
    service.mails.fetch_add(1, Ordering::SeqCst);
    if body == "bounces" {
        StatusCode::BAD_GATEWAY
    } else {
        StatusCode::ACCEPTED
    }
}

async fn slow_mails(State(service): State<Service>) -> StatusCode {
    service.mails.fetch_add(1, Ordering::SeqCst);
    service.stage.play().await;
    StatusCode::ACCEPTED
}
