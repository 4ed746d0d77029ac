//! Clients that leave at any moment.

use std::{io, net::SocketAddr, time::Duration};

use actix_web::{
    App, Error, HttpResponse, HttpServer,
    body::BoxBody,
    dev::{ServiceRequest, ServiceResponse},
    middleware::{Next, from_fn},
    rt, web,
};
use bytes::Bytes;
use latchwork_actix::{HeldLock, HeldPermit, LockMiddleware, OnDisconnect, SlotMiddleware};
use latchwork_core::{Key, Locks, memory::MemoryServer};
use latchwork_harness::http::{Client, Event, Leave, Stage, WAYS_TO_LEAVE, Watcher, ask, in_time, stage};
use tokio::sync::mpsc;

use crate::support::{HalfClosed, are_free, is_free, is_held, serve, serve_with, start};

const KEY: Key = Key::bigint(1);

fn locked(half_closed: HalfClosed, lock: LockMiddleware) -> (SocketAddr, Watcher) {
    let (stage, watcher) = stage();
    let address = serve_with(half_closed, move |routes| {
        routes
            .app_data(web::Data::new(stage.clone()))
            .service(web::resource("/").wrap(lock.clone()).route(web::post().to(play)))
            .route("/ping", web::get().to(|| async { "pong" }));
    });
    (address, watcher)
}

async fn play(stage: web::Data<Stage>) -> &'static str {
    stage.play().await;
    "done"
}

/// Which departures end a handler.
const SEEN: [(HalfClosed, Leave); 4] = [
    (HalfClosed::Allowed, Leave::Rst),
    (HalfClosed::IsGone, Leave::Rst),
    (HalfClosed::IsGone, Leave::Fin),
    (HalfClosed::IsGone, Leave::HalfClose),
];

#[actix_web::test]
async fn a_client_that_is_seen_to_leave_cancels_the_handler_and_frees_the_lock() {
    for (half_closed, how) in SEEN {
        let server = MemoryServer::new();
        let locks = server.locks();
        let (address, mut watcher) = locked(half_closed, LockMiddleware::new(server.locks(), KEY).unwrap());
        let client = Client::asks(address, "POST /", "").await;
        watcher.sees(Event::Entered).await;
        assert!(is_held(&locks, KEY).await, "{half_closed:?} {how:?}");
        let _rest = client.leave(how).await;
        watcher.sees(Event::Dropped).await;
        is_free(&locks, KEY).await;
        watcher.lets_go(1);
        assert_eq!(ask(address, "POST /").await.status(), 200, "{half_closed:?} {how:?}");
    }
}

#[actix_web::test]
async fn a_handler_is_dropped_while_it_holds_its_lock_and_its_slot() {
    let locks = Locks::in_memory();
    let lock = LockMiddleware::new(locks.clone(), KEY).unwrap();
    let slot = SlotMiddleware::global(locks.slots("all", 1).unwrap());
    let (to, mut seen) = mpsc::unbounded_channel();
    let address = serve(move |routes| {
        let resource = web::resource("/").wrap(slot.clone()).wrap(lock.clone());
        routes
            .app_data(web::Data::new(to.clone()))
            .service(resource.route(web::get().to(looks_back)));
    });
    let client = Client::asks(address, "GET /", "").await;
    assert_eq!(in_time(seen.recv()).await, Some((true, true)));
    client.leave(Leave::Rst).await;
    assert_eq!(in_time(seen.recv()).await, Some((true, true)));
}

type Seen = mpsc::UnboundedSender<(bool, bool)>;

/// Tells what it holds when it begins, and when it is dropped.
async fn looks_back(lock: HeldLock, slot: HeldPermit, to: web::Data<Seen>) -> HttpResponse {
    struct Look(HeldLock, HeldPermit, web::Data<Seen>);

    impl Drop for Look {
        fn drop(&mut self) {
            let _ = self.2.send((self.0.is_held(), self.1.is_held()));
        }
    }

    drop(Look(lock.clone(), slot.clone(), to.clone()));
    let _look = Look(lock, slot, to);
    std::future::pending().await
}

#[actix_web::test]
async fn by_default_a_client_that_closes_its_half_keeps_its_lock_and_gets_its_answer() {
    for how in [Leave::Fin, Leave::HalfClose] {
        let server = MemoryServer::new();
        let locks = server.locks();
        let (address, mut watcher) = locked(HalfClosed::Allowed, LockMiddleware::new(server.locks(), KEY).unwrap());
        let client = Client::asks(address, "POST /", "connection: close\r\n").await;
        watcher.sees(Event::Entered).await;
        let rest = client.leave(how).await;
        // The only worker takes these up after what has come in before.
        for _ in 0..10 {
            assert_eq!(ask(address, "GET /ping").await.status(), 200);
        }
        assert!(is_held(&locks, KEY).await && watcher.has_seen_nothing(), "{how:?}");
        watcher.lets_go(1);
        watcher.sees(Event::Done).await;
        is_free(&locks, KEY).await;
        if let Some(client) = rest {
            assert_eq!(client.answer().await.body(), "done");
        }
    }
}

#[actix_web::test]
async fn a_handler_that_is_to_complete_does_and_holds_its_lock_until_then() {
    for (half_closed, how) in SEEN {
        let server = MemoryServer::new();
        let locks = server.locks();
        let lock = LockMiddleware::new(server.locks(), KEY)
            .unwrap()
            .on_disconnect(OnDisconnect::Complete);
        let (inner, mut handler) = stage();
        let (outer, mut request) = stage();
        let address = serve_with(half_closed, move |routes| {
            routes
                .app_data(web::Data::new(inner.clone()))
                .app_data(web::Data::new(Outer(outer.clone())))
                .service(
                    web::resource("/")
                        .wrap(lock.clone())
                        .wrap(from_fn(beside))
                        .route(web::post().to(play)),
                );
        });
        let client = Client::asks(address, "POST /", "").await;
        handler.sees(Event::Entered).await;
        request.sees(Event::Entered).await;
        let _rest = client.leave(how).await;
        // What is outside of the middleware goes with the request.
        request.sees(Event::Dropped).await;
        assert!(
            is_held(&locks, KEY).await && handler.has_seen_nothing(),
            "{half_closed:?} {how:?}"
        );
        handler.lets_go(1);
        handler.sees(Event::Done).await;
        is_free(&locks, KEY).await;
    }
}

struct Outer(Stage);

/// Plays on another stage for as long as the request lives.
async fn beside(
    outer: web::Data<Outer>,
    request: ServiceRequest,
    next: Next<impl actix_web::body::MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    tokio::select! {
        response = next.call(request) => response.map(ServiceResponse::map_into_boxed_body),
        () = outer.0.play() => Err(actix_web::error::ErrorImATeapot("nobody lets it go")),
    }
}

#[actix_web::test]
async fn a_server_that_stops_drops_handlers_whose_clients_have_left_and_frees_their_locks() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let lock = LockMiddleware::new(server.locks(), KEY)
        .unwrap()
        .on_disconnect(OnDisconnect::Complete);
    let (stage, mut watcher) = stage();
    let app = move || {
        let stage = web::Data::new(stage.clone());
        App::new()
            .app_data(stage)
            .service(web::resource("/").wrap(lock.clone()).route(web::post().to(play)))
    };
    let service = HttpServer::new(app).workers(1).h1_allow_half_closed(false);
    let service = service.disable_signals().bind("127.0.0.1:0").unwrap();
    let address = service.addrs()[0];
    let service = service.run();
    let handle = service.handle();
    rt::spawn(service);

    let client = Client::asks(address, "POST /", "").await;
    watcher.sees(Event::Entered).await;
    assert!(client.leave(Leave::Rst).await.is_none());
    in_time(handle.stop(true)).await;
    watcher.sees(Event::Dropped).await;
    is_free(&locks, KEY).await;
}

#[actix_web::test]
async fn a_handler_that_is_to_complete_answers_a_client_that_stays() {
    let server = MemoryServer::new();
    let lock = LockMiddleware::new(server.locks(), KEY)
        .unwrap()
        .on_disconnect(OnDisconnect::Complete);
    let (address, mut watcher) = locked(HalfClosed::Allowed, lock);
    watcher.lets_go(1);
    let answer = ask(address, "POST /").await;
    assert_eq!((answer.status(), answer.body()), (200, "done"));
    watcher.sees(Event::Entered).await;
    is_free(&server.locks(), KEY).await;
}

#[actix_web::test]
async fn a_client_that_leaves_while_it_waits_leaves_nothing_behind() {
    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        for (half_closed, how) in SEEN {
            let server = MemoryServer::new();
            let lock = LockMiddleware::new(server.locks(), KEY).unwrap();
            let lock = lock.wait(Duration::from_secs(60)).on_disconnect(on_disconnect);
            let (address, mut watcher) = locked(half_closed, lock);
            let locks = server.locks();
            let guard = locks.try_acquire(KEY).await.unwrap().unwrap();
            let client = Client::asks(address, "POST /", "").await;
            until(|| server.queued() == 1).await;
            let _rest = client.leave(how).await;
            until(|| server.queued() == 0).await;
            drop(guard);
            is_free(&locks, KEY).await;
            assert!(watcher.has_seen_nothing(), "{half_closed:?} {how:?}");
        }
    }
}

/// Yields until it is so.
async fn until(mut is_so: impl FnMut() -> bool) {
    in_time(async {
        while !is_so() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[actix_web::test]
async fn an_unread_answer_does_not_keep_the_lock() {
    let server = MemoryServer::new();
    let lock = LockMiddleware::new(server.locks(), KEY).unwrap();
    let address = serve(move |routes| {
        let large = || async { Bytes::from(vec![b'x'; 64 << 20]) };
        routes.service(web::resource("/").wrap(lock.clone()).route(web::get().to(large)));
    });
    let mut client = Client::asks(address, "GET /", "").await;
    // The answer has begun, so the handler has ended.
    client.reads_until("\r\n\r\n").await;
    is_free(&server.locks(), KEY).await;
}

#[actix_web::test]
async fn an_answer_that_is_not_read_keeps_its_slot_until_the_client_leaves() {
    for half_closed in [HalfClosed::Allowed, HalfClosed::IsGone] {
        for how in [Leave::Fin, Leave::Rst] {
            let server = MemoryServer::new();
            let slots = server.locks().slots("all", 1).unwrap();
            let slot = SlotMiddleware::global(slots.clone());
            let address = serve_with(half_closed, move |routes| {
                routes.service(web::resource("/").wrap(slot.clone()).route(web::get().to(endless)));
            });
            let mut client = Client::asks(address, "GET /", "").await;
            client.reads_until("\r\n\r\n").await;
            assert_eq!(ask(address, "GET /").await.status(), 503);
            assert!(client.leave(how).await.is_none());
            are_free(&slots, 1).await;
        }
    }
}

async fn endless() -> HttpResponse {
    let chunks = futures_util::stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(&[b'x'; 1024])));
    HttpResponse::Ok().streaming(chunks)
}

#[actix_web::test]
async fn a_pipelined_request_is_handled_after_the_first_and_both_free_the_lock() {
    let server = MemoryServer::new();
    let (address, mut watcher) = locked(HalfClosed::Allowed, LockMiddleware::new(server.locks(), KEY).unwrap());
    let mut client = Client::connect(address).await;
    client
        .send(b"POST / HTTP/1.1\r\nhost: t\r\n\r\nPOST / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")
        .await;
    watcher.sees(Event::Entered).await;
    watcher.lets_go(2);
    let answers = client.answer().await;
    assert_eq!(answers.0.matches("200 OK").count(), 2, "{answers:?}");
    is_free(&server.locks(), KEY).await;
}

/// 300 clients, each of which leaves at a random place of its request or of the answer.
#[actix_web::test]
async fn clients_that_leave_at_random_leave_nothing_held() {
    for half_closed in [HalfClosed::Allowed, HalfClosed::IsGone] {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let server = MemoryServer::new();
        let locks = server.locks();
        let address = random_app(half_closed, &locks);
        let mut clients = Vec::new();
        for _ in 0..300 {
            let how = WAYS_TO_LEAVE[random.usize(..3)];
            let path = ["/work", "/complete"][random.usize(..2)];
            let request = format!("POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: 20\r\n\r\n01234567890123456789");
            let sent = random.usize(..=request.len());
            let yields = random.usize(..50);
            clients.push(rt::spawn(async move {
                let mut client = Client::connect(address).await;
                client.send(&request.as_bytes()[..sent]).await;
                for _ in 0..yields {
                    tokio::task::yield_now().await;
                }
                let _rest = client.leave(how).await;
            }));
        }
        for client in clients {
            in_time(client).await.unwrap();
        }
        // A lock or slot that somebody still had would keep this waiting.
        is_free(&server.locks(), KEY).await;
        are_free(&server.locks().slots("all", 3).unwrap(), 3).await;
        in_time(locks.close()).await;
        assert_eq!(server.queued(), 0);
    }
}

fn random_app(half_closed: HalfClosed, locks: &Locks) -> SocketAddr {
    let lock = LockMiddleware::new(locks.clone(), KEY)
        .unwrap()
        .wait(Duration::from_millis(20));
    let complete = lock.clone().on_disconnect(OnDisconnect::Complete);
    let slot = SlotMiddleware::global(locks.slots("all", 3).unwrap()).wait(Duration::from_millis(20));
    let app = move || {
        App::new()
            .wrap(slot.clone())
            .service(web::resource("/work").wrap(lock.clone()).route(web::post().to(echo)))
            .service(
                web::resource("/complete")
                    .wrap(complete.clone())
                    .route(web::post().to(echo)),
            )
    };
    let allowed = half_closed == HalfClosed::Allowed;
    start!(HttpServer::new(app).workers(2).h1_allow_half_closed(allowed))
}

async fn echo(body: Bytes) -> Bytes {
    tokio::task::yield_now().await;
    body
}

#[actix_web::test]
async fn a_handler_that_panics_frees_lock_and_slot() {
    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        let server = MemoryServer::new();
        let locks = server.locks();
        let lock = LockMiddleware::new(locks.clone(), KEY)
            .unwrap()
            .on_disconnect(on_disconnect);
        let slots = locks.slots("all", 1).unwrap();
        let slot = SlotMiddleware::global(slots.clone()).on_disconnect(on_disconnect);
        let (stage, mut watcher) = stage();
        let address = serve(move |routes| {
            routes
                .app_data(web::Data::new(stage.clone()))
                .service(
                    web::resource("/")
                        .wrap(lock.clone())
                        .wrap(slot.clone())
                        .route(web::get().to(panics)),
                )
                .route("/ping", web::get().to(|| async { "pong" }));
        });
        // actix-web catches no panics: the connection ends.
        assert_eq!(ask(address, "GET /").await.0, "");
        watcher.sees(Event::Entered).await;
        is_free(&server.locks(), KEY).await;
        are_free(&slots, 1).await;
        assert_eq!(ask(address, "GET /ping").await.status(), 200);
    }
}

async fn panics(stage: web::Data<Stage>) -> HttpResponse {
    stage.tell(Event::Entered);
    panic!("as the test wants");
}
