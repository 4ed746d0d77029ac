use std::{convert::Infallible, net::SocketAddr};

use ::axum::{
    Router,
    body::Body,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use latchwork_tower::{
    HeldLock, HeldPermit, LockLayer, OnDisconnect, SlotLayer,
    key::{client, header, param},
};

use super::{HASTY, HERE, PATIENT, SLOTS, Served, Server, Service, listener};

pub(in super::super) enum Axum {}

impl Server for Axum {
    fn serve(service: Service) -> Served {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let app = app(service.clone())
            .merge(keys(&service))
            .with_state(service)
            .into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(async move { ::axum::serve(listener, app).await.unwrap() });
        let stop = Box::pin(async move { server.abort() });
        Served { address, stop }
    }
}

fn app(service: Service) -> Router<Service> {
    let locks = &service.locks;
    let order = LockLayer::new(locks.clone(), ("order", param("id"))).unwrap();
    let patient = LockLayer::new(locks.clone(), "patient").unwrap().wait(PATIENT);
    let complete = LockLayer::new(locks.clone(), "patient")
        .unwrap()
        .wait(HASTY)
        .on_disconnect(OnDisconnect::Complete);
    let slots = SlotLayer::global(locks.slots("streams", SLOTS).unwrap());
    let panic_lock = LockLayer::new(locks.clone(), "panics").unwrap();
    let panic_slots = SlotLayer::global(locks.slots("panics", SLOTS).unwrap());
    let early = SlotLayer::global(locks.slots("early", 1).unwrap()).until_response();
    Router::new()
        .route("/orders/{id}/charge", post(charge).layer(order))
        .route("/patient", post(alone).layer(patient))
        .route("/complete", post(alone).layer(complete))
        .route("/stream", get(stream).layer(slots))
        .route("/panics", get(panics).layer((panic_lock, panic_slots)))
        .route("/early", get(stream).layer(early))
}

fn keys(service: &Service) -> Router<Service> {
    let locks = &service.locks;
    let by_header = LockLayer::new(locks.clone(), ("by header", header("x-key"))).unwrap();
    let pair = (header("x-a"), header("x-b"));
    let by_pair = LockLayer::new(locks.clone(), pair).unwrap();
    let by_client = SlotLayer::per(locks.clone(), ("client", client()), 1).unwrap();
    let proxied = ("proxied", client().behind(HERE));
    let by_proxied = SlotLayer::per(locks.clone(), proxied, 1).unwrap();
    let crowd = SlotLayer::global(locks.slots("crowd", SLOTS).unwrap());
    Router::new()
        .route("/by-header", post(charge).layer(by_header))
        .route("/by-pair", post(charge).layer(by_pair))
        .route("/by-client", get(charge).layer(by_client))
        .route("/by-proxied-client", get(charge).layer(by_proxied))
        .route("/crowd", get(charge).layer(crowd))
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

async fn panics() {
    panic!("as the test wants");
}

async fn stream(held: HeldPermit) -> ([(&'static str, String); 1], Body) {
    let chunks = futures_util::stream::repeat_with(|| Ok::<_, Infallible>("more of it\n"));
    ([("x-slot", held.slot().to_string())], Body::from_stream(chunks))
}
