use ::axum::{
    Router,
    extract::{Path, Request, State},
    http::StatusCode,
    middleware::{Next, from_fn},
    response::Response,
    routing::post,
};
use latchwork_tower::{OnDisconnect, TxLockLayer, key::param};

use super::{HASTY, HURRIED, PATIENT, Server, Service, work};
use crate::http::{
    library::{Library, Tx},
    servers::{Served, listener},
};

type LockedTx<L> = latchwork_tower::LockedTx<Tx<L>>;
type Layer<L> = TxLockLayer<<L as Library>::Provider>;

pub(in super::super) enum Axum {}

impl<L: Library> Server for (Axum, L) {
    type Library = L;

    fn serve(service: Service<L>) -> Served {
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

fn order<L: Library>(service: &Service<L>) -> Layer<L> {
    Layer::<L>::new(service.provider.clone(), ("order", param("id"))).unwrap()
}

fn layer<L: Library>(service: &Service<L>, key: &'static str) -> Layer<L> {
    Layer::<L>::new(service.provider.clone(), key).unwrap()
}

fn orders<L: Library>(service: &Service<L>) -> Router<Service<L>> {
    let order = || order(service);
    let hurried = order().answer_within(HURRIED);
    let complete = order().on_disconnect(OnDisconnect::Complete);
    Router::new()
        .route("/orders/{id}/charge", post(charge::<L>).layer(order()))
        .route("/orders/{id}/complete", post(charge::<L>).layer(complete))
        .route("/orders/{id}/hurried", post(charge::<L>).layer(hurried.clone()))
        .route("/orders/{id}/asleep", post(asleep_in_the_server::<L>).layer(hurried))
        .route("/orders/{id}/lost", post(lost::<L>).layer(order()))
        .route("/orders/{id}/spawned", post(spawned::<L>).layer(order()))
}

fn routes<L: Library>(service: &Service<L>) -> Router<Service<L>> {
    let layer = |key| layer(service, key);
    let joined = layer("joined").join_open().wait(PATIENT);
    Router::new()
        .route("/add", post(add::<L>).layer(layer("counter").wait(PATIENT)))
        .route("/joined/{id}", post(add::<L>).layer((order(service), joined)))
        .route("/status/{code}", post(status::<L>).layer(layer("status")))
        .route("/orphan", post(orphan::<L>).layer(layer("orphan")))
        .route("/swallowed", post(swallowed::<L>).layer(layer("swallowed")))
        .route("/savepoint", post(savepoint::<L>).layer(layer("savepoint")))
        .route("/ended/{how}", post(ended::<L>).layer(layer("ended")))
        .route("/panics", post(panics::<L>).layer(layer("panics")))
        .route(
            "/by-turns",
            post(insert::<L>).layer((layer("by turns"), from_fn(works_before::<L>))),
        )
        .route(
            "/overlap",
            post(insert::<L>).layer((layer("overlap"), from_fn(works_meanwhile::<L>))),
        )
}

fn keys<L: Library>(service: &Service<L>) -> Router<Service<L>> {
    let key = || Layer::<L>::new(service.provider.clone(), ("random", param("key"))).unwrap();
    let random = key().wait(HASTY);
    let all_random = random.clone().on_disconnect(OnDisconnect::Complete);
    let stays = key().wait(PATIENT).answer_within(PATIENT);
    Router::new()
        .route("/random/{key}", post(two_rows::<L>).layer(random))
        .route("/all-random/{key}", post(two_rows::<L>).layer(all_random))
        .route("/stays/{key}/{id}", post(stays_for_two_rows::<L>).layer(stays))
}

async fn charge<L: Library>(State(service): State<Service<L>>, mut tx: LockedTx<L>) {
    work::charge::<L>(&service.stage, &mut tx).await;
}

async fn asleep_in_the_server<L: Library>(mut tx: LockedTx<L>) {
    work::asleep_in_the_server::<L>(&mut tx).await;
}

async fn lost<L: Library>(State(service): State<Service<L>>, mut tx: LockedTx<L>) {
    work::lost::<L>(&service.stage, &mut tx).await;
}

async fn spawned<L: Library>(State(service): State<Service<L>>, tx: LockedTx<L>) {
    work::spawned::<L>(service.stage, tx).await;
}

async fn add<L: Library>(mut tx: LockedTx<L>) {
    work::add::<L>(&mut tx).await;
}

async fn status<L: Library>(Path(code): Path<u16>, mut tx: LockedTx<L>) -> StatusCode {
    work::insert::<L>(&mut tx).await;
    StatusCode::from_u16(code).unwrap()
}

async fn orphan<L: Library>(mut tx: LockedTx<L>) {
    work::orphan::<L>(&mut tx).await;
}

async fn swallowed<L: Library>(mut tx: LockedTx<L>) {
    work::swallowed::<L>(&mut tx).await;
}

async fn savepoint<L: Library>(mut tx: LockedTx<L>) {
    work::savepoint::<L>(&mut tx).await;
}

async fn ended<L: Library>(Path(how): Path<String>, mut tx: LockedTx<L>) {
    work::ended::<L>(&how, &mut tx).await;
}

async fn panics<L: Library>(State(_): State<Service<L>>, mut tx: LockedTx<L>) {
    work::panics::<L>(&mut tx).await;
}

async fn insert<L: Library>(mut tx: LockedTx<L>) {
    work::insert::<L>(&mut tx).await;
}

async fn works_before<L: Library>(mut tx: LockedTx<L>, request: Request, next: Next) -> Response {
    work::insert::<L>(&mut tx).await;
    drop(tx);
    next.run(request).await
}

async fn works_meanwhile<L: Library>(mut tx: LockedTx<L>, request: Request, next: Next) -> Response {
    work::insert::<L>(&mut tx).await;
    let response = next.run(request).await;
    drop(tx);
    response
}

async fn two_rows<L: Library>(mut tx: LockedTx<L>) {
    work::two_rows::<L>(work::random_id(), &mut tx).await;
}

async fn stays_for_two_rows<L: Library>(Path((_, id)): Path<(u8, i64)>, mut tx: LockedTx<L>) {
    work::two_rows::<L>(id, &mut tx).await;
}
