//! Status, headers and body survive every nesting.

use std::convert::Infallible;

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Method, Request, Response, StatusCode},
    middleware::{Next, from_fn},
    routing::{get, post},
};
use http_body_util::BodyExt;
use latchwork_core::{Guard, Key, Locks};
use latchwork_tower::{
    HeldLock, LockLayer, SlotLayer,
    key::{param, route, segment},
};
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_http::cors::CorsLayer;

use crate::support::{ask_with, serve};

const KEY: Key = Key::bigint(1);

async fn busy() -> (LockLayer, Guard) {
    let locks = Locks::in_memory();
    let guard = locks.try_acquire(KEY).await.unwrap().unwrap();
    (LockLayer::new(locks, KEY).unwrap(), guard)
}

async fn answer(app: Router, request: Request<Body>) -> (u16, Option<HeaderValue>, Option<HeaderValue>, String) {
    let response: Response<Body> = app.oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let headers = response.headers();
    let (kind, retry) = (
        headers.get("content-type").cloned(),
        headers.get("retry-after").cloned(),
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, kind, retry, String::from_utf8(body.to_vec()).unwrap())
}

fn post_to(path: &str) -> Request<Body> {
    Request::post(path).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_refusal_survives_every_nesting() {
    let (layer, _guard) = busy().await;
    let slot = || SlotLayer::global(Locks::in_memory().slots("all", 1).unwrap());
    let passes = from_fn(|request: axum::extract::Request, next: Next| next.run(request));
    let route = || Router::new().route("/a", post(|| async {}));
    let apps = [
        route().layer(layer.clone()),
        route().route_layer(layer.clone()),
        Router::new().route("/a", post(|| async {}).layer(layer.clone())),
        Router::new().route("/a", post(|| async {}).route_layer(layer.clone())),
        Router::new().route_service("/a", layer.layer(post(|| async {}))),
        Router::new().merge(route().layer(layer.clone())).layer(slot()),
        route().layer(layer.clone()).layer(slot()).layer(slot()),
        route()
            .layer(layer.clone())
            .layer(passes.clone())
            .layer(CorsLayer::permissive()),
        route().layer(ServiceBuilder::new().layer(slot()).layer(passes).layer(layer.clone())),
        Router::new().fallback_service(route().layer(layer.clone())),
    ];
    for (number, app) in apps.into_iter().enumerate() {
        let (status, kind, retry, body) = answer(app, post_to("/a")).await;
        assert_eq!(status, 409, "{number}");
        assert_eq!(kind.unwrap(), "application/problem+json", "{number}");
        assert_eq!(retry.unwrap(), "1", "{number}");
        assert!(
            body.starts_with('{') && body.contains("urn:latchwork:problem:lock-busy"),
            "{number}: {body}"
        );
    }
}

#[tokio::test]
async fn a_response_passes_unchanged() {
    let locks = Locks::in_memory();
    let layers = (
        SlotLayer::global(locks.slots("all", 1).unwrap()),
        LockLayer::new(locks, KEY).unwrap(),
    );
    let app = Router::new()
        .route(
            "/a",
            post(|body: String| async move { (StatusCode::CREATED, [("x-a", "1")], body) }),
        )
        .layer(layers);
    let request = Request::post("/a").body(Body::from("the body")).unwrap();
    let response = app.oneshot(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.headers()["x-a"].to_str().unwrap()),
        (201, "1")
    );
    assert_eq!(response.headers()["content-length"], "8");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "the body");
}

#[tokio::test]
async fn cors_outside_decorates_refusals_and_preflights_pass() {
    let (layer, _guard) = busy().await;
    let cors = CorsLayer::new()
        .allow_origin("https://shop.example".parse::<HeaderValue>().unwrap())
        .allow_methods([Method::POST]);
    let inside = Router::new()
        .route("/", post(|| async {}))
        .layer((cors.clone(), layer.clone()));
    let origin = "origin: https://shop.example\r\n";
    let address = serve(inside).await;
    let refused = ask_with(address, "POST /", origin).await;
    assert_eq!(refused.status(), 409);
    assert_eq!(
        refused.header("access-control-allow-origin"),
        Some("https://shop.example")
    );

    // Where the lock is outside of CORS, preflights still reach it.
    let outside = Router::new().route("/", post(|| async {})).layer((layer, cors));
    let preflight = format!("{origin}access-control-request-method: POST\r\n");
    for address in [address, serve(outside).await] {
        let passed = ask_with(address, "OPTIONS /", &preflight).await;
        assert_eq!(
            (passed.status(), passed.header("access-control-allow-methods")),
            (200, Some("POST"))
        );
    }
}

#[tokio::test]
async fn keys_from_route_and_path_do_not_depend_on_nesting() {
    async fn keys(locks: &Locks, wrap: impl Fn(Router) -> Router, path: &str) -> Vec<Key> {
        let layer = |number: usize| match number {
            0 => LockLayer::new(locks.clone(), (route(), "x")),
            1 => LockLayer::new(locks.clone(), ("id", param("id"))),
            _ => LockLayer::new(locks.clone(), ("segment", segment(2))),
        };
        let handler = |lock: HeldLock| async move { lock.key().to_string() };
        let mut keys = Vec::new();
        for number in 0..3 {
            let app = wrap(Router::new().route("/orders/{id}", get(handler).layer(layer(number).unwrap())));
            let (status, .., body) = answer(app, Request::get(path).body(Body::empty()).unwrap()).await;
            assert_eq!(status, 200, "{body}");
            keys.push(Key::bigint(body.parse().unwrap()));
        }
        keys
    }
    let locks = Locks::in_memory();
    let nested = keys(&locks, |routes| Router::new().nest("/api", routes), "/api/orders/42").await;
    let names = locks.namespace();
    assert_eq!(nested[0], names.key_of(&["/api/orders/{id}", "x"]).unwrap());
    assert_eq!(nested[1], names.key_of(&["id", "42"]).unwrap());
    assert_eq!(nested[2], names.key_of(&["segment", "42"]).unwrap());
}

#[tokio::test]
async fn an_unknown_path_stays_404_under_route_layer() {
    let layer = LockLayer::new(Locks::in_memory(), ("order", param("id"))).unwrap();
    let app = || Router::new().route("/orders/{id}", post(|| async {}));
    assert_eq!(
        answer(app().route_layer(layer.clone()), post_to("/nowhere")).await.0,
        404
    );
    assert_eq!(answer(app().layer(layer), post_to("/nowhere")).await.0, 400);
}

#[tokio::test]
async fn the_callback_replaces_refusals() {
    let (layer, _guard) = busy().await;
    let layer = layer.on_reject(|rejection, response| {
        assert_eq!(rejection.status(), response.status());
        response.map(|_| "try later".into())
    });
    let app = Router::new().route("/a", post(|| async {}).layer(layer));
    let (status, .., body) = answer(app, post_to("/a")).await;
    assert_eq!((status, body.as_str()), (409, "try later"));
}

/// The error type stays the inner one, so nothing has to handle errors of ours.
#[test]
fn an_infallible_service_stays_infallible_and_futures_can_be_sent() {
    fn check<S>(_: &S)
    where
        S: tower::Service<Request<Body>, Error = Infallible, Future: Send> + Clone + Send + Sync + 'static,
    {
    }
    let locks = Locks::in_memory();
    let lock = LockLayer::new(locks.clone(), KEY).unwrap();
    let slot = SlotLayer::global(locks.slots("all", 1).unwrap());
    check(&lock.layer(Router::<()>::new()));
    check(&slot.layer(lock.layer(Router::<()>::new())));
    check(&lock.layer(slot.layer(Router::<()>::new())));
}
