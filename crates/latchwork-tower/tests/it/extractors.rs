//! What a handler is given.

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    routing::get,
};
use http_body_util::BodyExt;
use latchwork_core::{Key, Locks, Mode, memory::MemoryServer};
use latchwork_tower::{
    HeldLock, HeldPermit, LockLayer, LockMode, SlotLayer,
    key::{by, header},
};
use tokio::sync::mpsc;
use tower::ServiceExt;

use crate::support::{in_time, is_free};

const KEY: Key = Key::bigint(1);

async fn status(app: &Router, path: &str) -> StatusCode {
    let request = Request::get(path).body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status()
}

#[tokio::test]
async fn a_handler_sees_its_lock_and_loses_sight_of_it_at_its_end() {
    let (to, mut views) = mpsc::unbounded_channel();
    let handler = move |lock: HeldLock| async move {
        assert!(lock.is_held() && lock.key() == KEY && lock.mode() == Mode::Shared && lock.outer().is_none());
        to.send(lock).unwrap();
    };
    let layer = LockLayer::new(Locks::in_memory(), KEY)
        .unwrap()
        .mode(LockMode::ByMethod);
    let app = Router::new().route("/", get(handler).layer(layer));
    assert_eq!(status(&app, "/").await, 200);
    let view = views.recv().await.unwrap();
    // Keeping the view does not keep the lock.
    assert!(!view.is_held() && view.state().is_none());
}

#[tokio::test]
async fn a_handler_can_await_the_loss_of_its_lock() {
    let server = MemoryServer::new();
    let ends = server.clone();
    let handler = move |lock: HeldLock| async move {
        let lost = lock.lost();
        ends.end_sessions();
        lost.await;
        assert!(!lock.is_held());
    };
    let layer = LockLayer::new(server.locks(), KEY).unwrap().cancel_on_loss(false);
    let app = Router::new().route("/", get(handler).layer(layer));
    assert_eq!(in_time(status(&app, "/")).await, 200);
}

#[tokio::test]
async fn of_several_locks_the_handler_sees_the_innermost_and_the_others_through_it() {
    let locks = Locks::in_memory();
    let layer = |key| LockLayer::new(locks.clone(), Key::bigint(key)).unwrap();
    let handler = |lock: HeldLock| async move {
        let keys = std::iter::successors(Some(&*lock), |lock| lock.outer()).map(|lock| lock.key());
        assert_eq!(keys.collect::<Vec<_>>(), [3, 2, 1].map(Key::bigint));
    };
    let app = Router::new().route("/", get(handler).layer((layer(1), layer(2), layer(3))));
    assert_eq!(status(&app, "/").await, 200);
}

#[tokio::test]
async fn a_missing_layer_is_named_in_a_500() {
    let app = Router::new()
        .route("/lock", get(|_: HeldLock| async {}))
        .route("/slot", get(|_: HeldPermit| async {}));
    for (path, layer) in [("/lock", "LockLayer"), ("/slot", "SlotLayer")] {
        let response = app
            .clone()
            .oneshot(Request::get(path).body(Body::empty()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), 500);
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(String::from_utf8_lossy(&body).contains(layer), "{body:?}");
    }
}

#[tokio::test]
async fn a_request_that_passes_without_a_lock_has_none() {
    let layer = LockLayer::new(Locks::in_memory(), header("x-key").optional()).unwrap();
    let app = Router::new()
        .route(
            "/maybe",
            get(|lock: Option<HeldLock>| async move { assert!(lock.is_none()) }),
        )
        .route("/must", get(|_: HeldLock| async {}))
        .layer(layer);
    assert_eq!(status(&app, "/maybe").await, 200);
    assert_eq!(status(&app, "/must").await, 500);
}

#[tokio::test]
async fn a_permit_that_was_taken_outlives_the_response() {
    let server = MemoryServer::new();
    let (to, mut permits) = mpsc::unbounded_channel();
    let handler = move |held: HeldPermit| async move {
        assert!(held.is_held() && held.slot() == 0);
        to.send(held.take().expect("nobody took it before")).unwrap();
        assert!(!held.is_held() && held.take().is_none());
    };
    let slots = server.locks().slots("sockets", 1).unwrap();
    let app = Router::new().route("/", get(handler).layer(SlotLayer::global(slots)));
    assert_eq!(status(&app, "/").await, 200);
    let permit = permits.recv().await.unwrap();
    assert_eq!(status(&app, "/").await, 503);
    let task = tokio::spawn(async move { drop(permit) });
    task.await.unwrap();
    assert_eq!(status(&app, "/").await, 200);
}

#[tokio::test]
async fn keeping_sight_of_a_slot_does_not_keep_the_slot() {
    let (to, mut views) = mpsc::unbounded_channel();
    let handler = move |held: HeldPermit| async move { to.send(held).unwrap() };
    let slots = Locks::in_memory().slots("all", 1).unwrap();
    let app = Router::new().route("/", get(handler).layer(SlotLayer::global(slots)));
    assert_eq!(status(&app, "/").await, 200);
    let view = views.recv().await.unwrap();
    assert!(!view.is_held() && view.take().is_none());
    assert_eq!(status(&app, "/").await, 200);
}

#[tokio::test]
async fn closures_see_the_extensions_of_layers_outside() {
    #[derive(Clone)]
    struct Tenant(i64);

    let locks = Locks::in_memory();
    let key = by(|parts| parts.extensions.get().map(|Tenant(id)| Key::bigint(*id)));
    let handler = |lock: HeldLock| async move { assert_eq!(lock.key(), Key::bigint(7)) };
    let app = Router::new()
        .route("/", get(handler).layer(LockLayer::new(locks.clone(), key).unwrap()))
        .layer(axum::Extension(Tenant(7)));
    assert_eq!(status(&app, "/").await, 200);
    is_free(&locks, Key::bigint(7)).await;
}
