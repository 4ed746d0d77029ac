use ::axum::{
    Router,
    extract::{Path, Request, State},
    http::StatusCode,
    middleware::{Next, from_fn},
    response::Response,
    routing::post,
};
use latchwork_postgres::transaction::{DeadpoolTx, PooledTx};
use latchwork_tower::{OnDisconnect, TxLockLayer, key::param};

use super::{HASTY, HURRIED, PATIENT, Server, Service, work};
use crate::http::servers::{Served, listener};

type LockedTx = latchwork_tower::LockedTx<PooledTx>;
type Layer = TxLockLayer<DeadpoolTx>;

pub(in super::super) enum Axum {}

impl Server for Axum {
    fn serve(service: Service) -> Served {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let app = orders(&service)
            .merge(routes(&service))
            .merge(keys(&service))
            .with_state(service);
        let server = tokio::spawn(async move { ::axum::serve(listener, app).await.unwrap() });
        let stop = Box::pin(async move { server.abort() });
        Served { address, stop }
    }
}

fn order(service: &Service) -> Layer {
    Layer::new(service.pool.clone(), ("order", param("id"))).unwrap()
}

fn layer(service: &Service, key: &'static str) -> Layer {
    Layer::new(service.pool.clone(), key).unwrap()
}

fn orders(service: &Service) -> Router<Service> {
    let order = || order(service);
    let hurried = order().answer_within(HURRIED);
    let complete = order().on_disconnect(OnDisconnect::Complete);
    Router::new()
        .route("/orders/{id}/charge", post(charge).layer(order()))
        .route("/orders/{id}/complete", post(charge).layer(complete))
        .route("/orders/{id}/hurried", post(charge).layer(hurried.clone()))
        .route("/orders/{id}/asleep", post(asleep_in_the_server).layer(hurried))
        .route("/orders/{id}/lost", post(lost).layer(order()))
        .route("/orders/{id}/spawned", post(spawned).layer(order()))
}

fn routes(service: &Service) -> Router<Service> {
    let layer = |key| layer(service, key);
    let joined = layer("joined").join_open().wait(PATIENT);
    Router::new()
        .route("/add", post(add).layer(layer("counter").wait(PATIENT)))
        .route("/joined/{id}", post(add).layer((order(service), joined)))
        .route("/status/{code}", post(status).layer(layer("status")))
        .route("/orphan", post(orphan).layer(layer("orphan")))
        .route("/swallowed", post(swallowed).layer(layer("swallowed")))
        .route("/savepoint", post(savepoint).layer(layer("savepoint")))
        .route("/ended/{how}", post(ended).layer(layer("ended")))
        .route("/panics", post(panics).layer(layer("panics")))
        .route(
            "/by-turns",
            post(insert).layer((layer("by turns"), from_fn(works_before))),
        )
        .route(
            "/overlap",
            post(insert).layer((layer("overlap"), from_fn(works_meanwhile))),
        )
}

fn keys(service: &Service) -> Router<Service> {
    let key = || Layer::new(service.pool.clone(), ("random", param("key"))).unwrap();
    let random = key().wait(HASTY);
    let all_random = random.clone().on_disconnect(OnDisconnect::Complete);
    let stays = key().wait(PATIENT).answer_within(PATIENT);
    Router::new()
        .route("/random/{key}", post(two_rows).layer(random))
        .route("/all-random/{key}", post(two_rows).layer(all_random))
        .route("/stays/{key}/{id}", post(stays_for_two_rows).layer(stays))
}

async fn charge(State(service): State<Service>, tx: LockedTx) {
    work::charge(&service.stage, &tx).await;
}

async fn asleep_in_the_server(tx: LockedTx) {
    work::asleep_in_the_server(&tx).await;
}

async fn lost(State(service): State<Service>, tx: LockedTx) {
    work::lost(&service.stage, &tx).await;
}

async fn spawned(State(service): State<Service>, tx: LockedTx) {
    work::spawned(service.stage, tx).await;
}

async fn add(tx: LockedTx) {
    work::add(&tx).await;
}

async fn status(Path(code): Path<u16>, tx: LockedTx) -> StatusCode {
    work::insert(&tx).await;
    StatusCode::from_u16(code).unwrap()
}

async fn orphan(tx: LockedTx) {
    work::orphan(&tx).await;
}

async fn swallowed(tx: LockedTx) {
    work::swallowed(&tx).await;
}

async fn savepoint(tx: LockedTx) {
    work::savepoint(&tx).await;
}

async fn ended(Path(how): Path<String>, tx: LockedTx) {
    work::ended(&how, &tx).await;
}

async fn panics(State(_): State<Service>, tx: LockedTx) {
    work::panics(&tx).await;
}

async fn insert(tx: LockedTx) {
    work::insert(&tx).await;
}

async fn works_before(tx: LockedTx, request: Request, next: Next) -> Response {
    work::insert(&tx).await;
    drop(tx);
    next.run(request).await
}

async fn works_meanwhile(tx: LockedTx, request: Request, next: Next) -> Response {
    work::insert(&tx).await;
    let response = next.run(request).await;
    drop(tx);
    response
}

async fn two_rows(tx: LockedTx) {
    work::two_rows(work::random_id(), &tx).await;
}

async fn stays_for_two_rows(Path((_, id)): Path<(u8, i64)>, tx: LockedTx) {
    work::two_rows(id, &tx).await;
}
