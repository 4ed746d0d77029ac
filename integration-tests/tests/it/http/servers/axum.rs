use std::convert::Infallible;

use ::axum::{
    Router,
    body::Body,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use latchwork_tower::{HeldLock, HeldPermit, LockLayer, OnDisconnect, SlotLayer, key::param};

use super::{HASTY, PATIENT, SLOTS, Served, Server, Service, listener};

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
    let locks = &service.locks;
    let order = LockLayer::new(locks.clone(), ("order", param("id"))).unwrap();
    let patient = LockLayer::new(locks.clone(), "patient").unwrap().wait(PATIENT);
    let complete = LockLayer::new(locks.clone(), "patient")
        .unwrap()
        .wait(HASTY)
        .on_disconnect(OnDisconnect::Complete);
    let slots = SlotLayer::global(locks.slots("streams", SLOTS).unwrap());
    Router::new()
        .route("/orders/{id}/charge", post(charge).layer(order))
        .route("/patient", post(alone).layer(patient))
        .route("/complete", post(alone).layer(complete))
        .route("/stream", get(stream).layer(slots))
        .with_state(service)
}

async fn charge(service: State<Service>) {
    service.stage.play().await;
}

async fn alone(lock: HeldLock, service: State<Service>) -> StatusCode {
    if service.is_alone().await && lock.is_held() {
        StatusCode::OK
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    }
}

async fn stream(held: HeldPermit) -> ([(&'static str, String); 1], Body) {
    let chunks = futures_util::stream::repeat_with(|| Ok::<_, Infallible>("more of it\n"));
    ([("x-slot", held.slot().to_string())], Body::from_stream(chunks))
}
