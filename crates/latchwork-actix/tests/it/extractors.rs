//! What a handler is given.

use actix_web::{
    App, HttpMessage, HttpResponse,
    middleware::{Next, from_fn},
    test::{TestRequest, call_service, init_service, read_body},
    web,
};
use latchwork_actix::{
    HeldLock, HeldPermit, LockMiddleware, LockMode, SlotMiddleware,
    key::{by, header},
};
use latchwork_core::{Key, Locks, Mode, memory::MemoryServer};
use latchwork_harness::http::in_time;
use tokio::sync::mpsc;

use crate::support::is_free;

const KEY: Key = Key::bigint(1);

/// The status of the app for a request to a path. The app's type has no name.
macro_rules! status {
    ($app:expr, $path:expr) => {
        call_service($app, TestRequest::get().uri($path).to_request())
            .await
            .status()
    };
}

#[actix_web::test]
async fn a_handler_sees_its_lock_and_loses_sight_of_it_at_its_end() {
    let (to, mut views) = mpsc::unbounded_channel();
    let handler = move |lock: HeldLock| {
        let to = to.clone();
        async move {
            assert!(lock.is_held() && lock.key() == KEY && lock.mode() == Mode::Shared && lock.outer().is_none());
            to.send(lock).unwrap();
            HttpResponse::Ok().finish()
        }
    };
    let lock = LockMiddleware::new(Locks::in_memory(), KEY)
        .unwrap()
        .mode(LockMode::ByMethod);
    let app = init_service(App::new().wrap(lock).route("/", web::get().to(handler))).await;
    assert_eq!(status!(&app, "/"), 200);
    let view = views.recv().await.unwrap();
    // Keeping the view does not keep the lock.
    assert!(!view.is_held() && view.state().is_none());
}

#[actix_web::test]
async fn a_handler_can_await_the_loss_of_its_lock() {
    let server = MemoryServer::new();
    let ends = server.clone();
    let handler = move |lock: HeldLock| {
        let ends = ends.clone();
        async move {
            let lost = lock.lost();
            ends.end_sessions();
            lost.await;
            assert!(!lock.is_held());
            HttpResponse::Ok().finish()
        }
    };
    let lock = LockMiddleware::new(server.locks(), KEY).unwrap().cancel_on_loss(false);
    let app = init_service(App::new().wrap(lock).route("/", web::get().to(handler))).await;
    assert_eq!(in_time(async { status!(&app, "/") }).await, 200);
}

#[actix_web::test]
async fn of_several_the_handler_sees_the_innermost_and_the_others_through_it() {
    let locks = Locks::in_memory();
    let lock = |key| LockMiddleware::new(locks.clone(), Key::bigint(key)).unwrap();
    let slot = |name| SlotMiddleware::global(locks.slots(name, 1).unwrap());
    let inner = locks.slots("inner", 1).unwrap();
    let handler = move |lock: HeldLock, held: HeldPermit| {
        let inner = inner.clone();
        async move {
            let keys = std::iter::successors(Some(&*lock), |lock| lock.outer()).map(|lock| lock.key());
            assert_eq!(keys.collect::<Vec<_>>(), [3, 2, 1].map(Key::bigint));
            assert!(
                held.outer()
                    .is_some_and(|outer| outer.is_held() && outer.key() != held.key())
            );
            assert!(inner.try_acquire().await.unwrap().is_none());
            drop(held.take());
            assert!(inner.try_acquire().await.unwrap().is_some());
            HttpResponse::Ok().finish()
        }
    };
    let resource = web::resource("/")
        .wrap(slot("inner"))
        .wrap(lock(3))
        .route(web::get().to(handler));
    let scope = web::scope("").wrap(lock(2)).service(resource);
    let app = init_service(App::new().wrap(lock(1)).wrap(slot("outer")).service(scope)).await;
    assert_eq!(status!(&app, "/"), 200);
}

#[actix_web::test]
async fn a_missing_middleware_is_named_in_a_500() {
    let app = App::new()
        .route("/lock", web::get().to(|_: HeldLock| async { "never" }))
        .route("/slot", web::get().to(|_: HeldPermit| async { "never" }));
    let app = init_service(app).await;
    for (path, middleware) in [("/lock", "LockMiddleware"), ("/slot", "SlotMiddleware")] {
        let response = call_service(&app, TestRequest::get().uri(path).to_request()).await;
        assert_eq!(response.status(), 500);
        assert_eq!(
            response.headers().get("content-type").unwrap(),
            "application/problem+json"
        );
        let body = read_body(response).await;
        assert!(String::from_utf8_lossy(&body).contains(middleware), "{body:?}");
    }
}

#[actix_web::test]
async fn a_request_that_passes_without_a_lock_has_none() {
    let lock = LockMiddleware::new(Locks::in_memory(), header("x-key").optional()).unwrap();
    let maybe = |lock: Option<HeldLock>| async move {
        assert!(lock.is_none());
        HttpResponse::Ok().finish()
    };
    let app = App::new()
        .wrap(lock)
        .route("/maybe", web::get().to(maybe))
        .route("/must", web::get().to(|_: HeldLock| async { "never" }));
    let app = init_service(app).await;
    assert_eq!(status!(&app, "/maybe"), 200);
    assert_eq!(status!(&app, "/must"), 500);
}

#[actix_web::test]
async fn a_permit_that_was_taken_outlives_the_response() {
    let server = MemoryServer::new();
    let (to, mut permits) = mpsc::unbounded_channel();
    let handler = move |held: HeldPermit| {
        let to = to.clone();
        async move {
            assert!(held.is_held() && held.slot() == 0);
            to.send(held.take().expect("nobody took it before")).unwrap();
            assert!(!held.is_held() && held.take().is_none());
            HttpResponse::Ok().finish()
        }
    };
    let slot = SlotMiddleware::global(server.locks().slots("sockets", 1).unwrap());
    let app = init_service(App::new().wrap(slot).route("/", web::get().to(handler))).await;
    assert_eq!(status!(&app, "/"), 200);
    let permit = permits.recv().await.unwrap();
    assert_eq!(status!(&app, "/"), 503);
    // Into any task, on any thread.
    std::thread::spawn(move || drop(permit)).join().unwrap();
    assert_eq!(status!(&app, "/"), 200);
}

#[actix_web::test]
async fn keeping_sight_of_a_slot_does_not_keep_the_slot() {
    let (to, mut views) = mpsc::unbounded_channel();
    let handler = move |held: HeldPermit| {
        let to = to.clone();
        async move {
            to.send(held).unwrap();
            HttpResponse::Ok().finish()
        }
    };
    let slots = Locks::in_memory().slots("all", 1).unwrap();
    let app = App::new()
        .wrap(SlotMiddleware::global(slots))
        .route("/", web::get().to(handler));
    let app = init_service(app).await;
    assert_eq!(status!(&app, "/"), 200);
    let view = views.recv().await.unwrap();
    assert!(!view.is_held() && view.take().is_none());
    assert_eq!(status!(&app, "/"), 200);
}

#[actix_web::test]
async fn closures_see_the_extensions_of_middleware_outside() {
    #[derive(Clone)]
    struct Tenant(i64);

    let locks = Locks::in_memory();
    let key = by(|request| request.extensions().get().map(|Tenant(id)| Key::bigint(*id)));
    let handler = |lock: HeldLock| async move {
        assert_eq!(lock.key(), Key::bigint(7));
        HttpResponse::Ok().finish()
    };
    let tenant = from_fn(|request: actix_web::dev::ServiceRequest, next: Next<_>| {
        request.extensions_mut().insert(Tenant(7));
        next.call(request)
    });
    let app = App::new()
        .wrap(LockMiddleware::new(locks.clone(), key).unwrap())
        .wrap(tenant)
        .route("/", web::get().to(handler));
    let app = init_service(app).await;
    assert_eq!(status!(&app, "/"), 200);
    is_free(&locks, Key::bigint(7)).await;
}
