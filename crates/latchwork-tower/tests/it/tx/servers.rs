//! That the layer fits on axum, tonic and plain hyper.

use std::convert::Infallible;

use axum::{Router, body::Body, routing::post};
use http::Request;
use hyper_util::service::TowerToHyperService;
use latchwork_tower::{LockLayer, SlotLayer, TxLockLayer};
use tower::{Layer as _, ServiceBuilder, ServiceExt, service_fn};

use super::{
    answer,
    database::{Count, Database},
    layer, read, request,
};

#[tokio::test]
async fn it_fits_in_every_place_of_an_axum_router() {
    let route = || Router::new().route("/", post(|| async {}));
    let locks = latchwork_core::Locks::in_memory();
    for nested in 0..7 {
        let database = Database::default();
        let layer = layer(&database);
        let slot = || SlotLayer::global(locks.slots("all", 1).unwrap());
        let lock = || LockLayer::new(locks.clone(), "a").unwrap();
        let app = match nested {
            0 => route().layer(layer),
            1 => route().route_layer(layer),
            2 => Router::new().route("/", post(|| async {}).layer(layer)),
            3 => Router::new().route("/", post(|| async {}).route_layer(layer)),
            4 => Router::new().route_service("/", layer.layer(post(|| async {}))),
            5 => route().layer(ServiceBuilder::new().layer(slot()).layer(lock()).layer(layer)),
            _ => Router::new().fallback_service(route().layer(layer).layer(slot())),
        };
        assert_eq!(read(app.oneshot(request()).await).await.0, 200, "{nested}");
        assert_eq!(database.count(), Count::COMMITTED, "{nested}");
    }
}

#[test]
fn it_fits_on_hyper_and_its_types_can_move() {
    fn can_move<T: Clone + Send + Sync + 'static>(it: T) -> T {
        it
    }
    fn is_send<T: Send>(it: T) -> T {
        it
    }
    let handler = service_fn(async |_: Request<Body>| Ok::<_, Infallible>(answer(200, &[])));
    let layer: TxLockLayer<Database> = can_move(layer(&Database::default()));
    let service = can_move(layer.layer(handler));
    drop(is_send(service.clone().oneshot(request())));
    drop(can_move(TowerToHyperService::new(service)));
}
