use std::{convert::Infallible, sync::atomic::Ordering};

use ::axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use latchwork_tower::{IdempotencyLayer, OnDisconnect, key::header};

use super::{CAP, PATIENT, Server, Service, insert, spawn};
use crate::http::{
    library::{Library, Tx},
    servers::{Served, listener},
};

type LockedTx<L> = latchwork_tower::LockedTx<Tx<L>>;
type Layer<L> = IdempotencyLayer<<L as Library>::Provider>;

pub(in super::super) enum Axum {}

impl<L: Library> Server for (Axum, L) {
    type Library = L;

    fn serve(service: Service<L>) -> Served {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let app = app(service);
        let server = tokio::spawn(async move { ::axum::serve(listener, app).await.unwrap() });
        let stop = Box::pin(async move { server.abort() });
        Served { address, stop }
    }
}

fn app<L: Library>(service: Service<L>) -> Router {
    let layer = || {
        Layer::<L>::new(service.provider.clone(), header("x-user").optional())
            .unwrap()
            .max_request_body(CAP)
            .max_response_body(CAP)
    };
    let leaves = layer().on_disconnect(OnDisconnect::Cancel);
    let external = layer()
        .external(service.locks.clone())
        .on_disconnect(OnDisconnect::Cancel);
    Router::new()
        .route(
            "/payments",
            post(pay::<L>).get(|| async { "all of them" }).layer(layer()),
        )
        .route("/payments/{id}/refund", post(pay::<L>).layer(layer()))
        .route("/slow", post(slow::<L>).layer(layer()))
        .route("/waits", post(slow::<L>).layer(layer().wait(PATIENT)))
        .route("/leaves", post(slow::<L>).layer(leaves.clone()))
        .route("/patient", post(pay::<L>).layer(layer().answer_within(PATIENT)))
        .route("/hasty", post(pay::<L>).layer(leaves))
        .route("/panics", post(panics::<L>).layer(layer()))
        .route("/spawned", post(spawned::<L>).layer(layer()))
        .route("/fails", post(fails::<L>).layer(layer()))
        .route("/deferred", post(deferred::<L>).layer(layer()))
        .route("/large", post(large::<L>).layer(layer()))
        .route("/stream", post(stream::<L>).layer(layer()))
        .route("/mails", post(mails::<L>).layer(external.clone()))
        .route("/slow-mails", post(slow_mails::<L>).layer(external))
        .route("/optional", post(|| async { "no key" }).layer(layer().optional()))
        .route("/free", get(|| async { "free" }))
        .with_state(service)
}

/// Stores a payment, and answers with the body that it was sent.
async fn pay<L: Library>(mut tx: LockedTx<L>, body: Bytes) -> Response {
    let id = insert::<L>(&mut tx).await;
    let headers = [
        (header::LOCATION, format!("/payments/{id}")),
        (header::CONTENT_TYPE, "application/x-echo".to_owned()),
        (header::SET_COOKIE, "session=1".to_owned()),
    ];
    (StatusCode::CREATED, headers, body).into_response()
}

async fn slow<L: Library>(State(service): State<Service<L>>, mut tx: LockedTx<L>) -> String {
    let id = insert::<L>(&mut tx).await;
    service.stage.play().await;
    format!("payment {id}")
}

async fn panics<L: Library>(State(_): State<Service<L>>, mut tx: LockedTx<L>) {
    insert::<L>(&mut tx).await;
    panic!("as the test wants");
}

async fn spawned<L: Library>(State(service): State<Service<L>>, tx: LockedTx<L>) {
    spawn::<L>(service.stage, tx).await;
}

async fn fails<L: Library>(mut tx: LockedTx<L>) -> StatusCode {
    insert::<L>(&mut tx).await;
    StatusCode::INTERNAL_SERVER_ERROR
}

/// Stores what the server refuses at COMMIT.
async fn deferred<L: Library>(mut tx: LockedTx<L>) -> &'static str {
    L::run(&mut tx, "INSERT INTO refunds VALUES (-1)").await.unwrap();
    "stored"
}

async fn large<L: Library>(mut tx: LockedTx<L>) -> Vec<u8> {
    insert::<L>(&mut tx).await;
    vec![b'x'; CAP + 1]
}

async fn stream<L: Library>(mut tx: LockedTx<L>) -> Body {
    insert::<L>(&mut tx).await;
    let parts = (0..3).map(|part| Ok::<_, Infallible>(format!("part {part}\n")));
    Body::from_stream(futures_util::stream::iter(parts))
}

async fn mails<L: Library>(State(service): State<Service<L>>, body: Bytes) -> StatusCode {
    service.mails.fetch_add(1, Ordering::SeqCst);
    if body == "bounces" {
        StatusCode::BAD_GATEWAY
    } else {
        StatusCode::ACCEPTED
    }
}

async fn slow_mails<L: Library>(State(service): State<Service<L>>) -> StatusCode {
    service.mails.fetch_add(1, Ordering::SeqCst);
    service.stage.play().await;
    StatusCode::ACCEPTED
}
