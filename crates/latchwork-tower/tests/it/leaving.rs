//! Clients that leave at any moment.

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::IntoResponse,
    routing::{get, post},
};
use latchwork_core::{Key, Locks, memory::MemoryServer};
use latchwork_tower::{LockLayer, OnDisconnect, SlotLayer};
use tower_http::catch_panic::CatchPanicLayer;

use crate::support::{
    Client, Event, Leave, Stage, WAYS_TO_LEAVE, Watcher, ask, in_time, is_free, is_held, serve, stage,
};

const KEY: Key = Key::bigint(1);

async fn locked(layer: impl FnOnce(LockLayer) -> LockLayer) -> (SocketAddr, Watcher, MemoryServer) {
    let server = MemoryServer::new();
    let (stage, watcher) = stage();
    let layer = layer(LockLayer::new(server.locks(), KEY).unwrap());
    let handler = move || async move {
        stage.play().await;
        "done"
    };
    let app = Router::new().route("/", post(handler).layer(layer));
    (serve(app).await, watcher, server)
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_handler_and_frees_the_lock() {
    for how in WAYS_TO_LEAVE {
        let (address, mut watcher, server) = locked(|layer| layer).await;
        let locks = server.locks();
        let client = Client::asks(address, "POST /", "").await;
        watcher.sees(Event::Entered).await;
        assert!(is_held(&locks, KEY).await, "{how:?}");
        let _rest = client.leave(how).await;
        watcher.sees(Event::Dropped).await;
        is_free(&locks, KEY).await;
        watcher.lets_go(1);
        assert_eq!(ask(address, "POST /").await.status(), 200, "{how:?}");
    }
}

#[tokio::test]
async fn a_handler_that_is_to_complete_does_and_holds_its_lock_until_then() {
    for how in WAYS_TO_LEAVE {
        let server = MemoryServer::new();
        let locks = server.locks();
        let layer = LockLayer::new(server.locks(), KEY)
            .unwrap()
            .on_disconnect(OnDisconnect::Complete);
        let (inner, mut handler) = stage();
        let (outer, mut request) = stage();
        // What is outside of the layer goes with the request.
        let around = from_fn(move |request: Request, next: Next| {
            let outer = outer.clone();
            async move {
                tokio::select! {
                    response = next.run(request) => response,
                    () = outer.play() => StatusCode::IM_A_TEAPOT.into_response(),
                }
            }
        });
        let app = Router::new().route(
            "/",
            post(move || async move { inner.play().await }).layer((around, layer)),
        );
        let address = serve(app).await;

        let client = Client::asks(address, "POST /", "").await;
        handler.sees(Event::Entered).await;
        request.sees(Event::Entered).await;
        let _rest = client.leave(how).await;
        request.sees(Event::Dropped).await;
        assert!(is_held(&locks, KEY).await && handler.has_seen_nothing(), "{how:?}");
        handler.lets_go(1);
        handler.sees(Event::Done).await;
        is_free(&locks, KEY).await;
    }
}

#[tokio::test]
async fn a_handler_that_is_to_complete_answers_a_client_that_stays() {
    let (address, mut watcher, server) = locked(|layer| layer.on_disconnect(OnDisconnect::Complete)).await;
    watcher.lets_go(1);
    let answer = ask(address, "POST /").await;
    assert_eq!((answer.status(), answer.body()), (200, "done"));
    watcher.sees(Event::Entered).await;
    is_free(&server.locks(), KEY).await;
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_leaves_nothing_behind() {
    for (how, on_disconnect) in WAYS_TO_LEAVE
        .into_iter()
        .zip([OnDisconnect::Cancel, OnDisconnect::Complete].into_iter().cycle())
    {
        let (address, mut watcher, server) =
            locked(|layer| layer.wait(Duration::from_secs(60)).on_disconnect(on_disconnect)).await;
        let locks = server.locks();
        let guard = locks.try_acquire(KEY).await.unwrap().unwrap();
        let client = Client::asks(address, "POST /", "").await;
        until(|| server.queued() == 1).await;
        let _rest = client.leave(how).await;
        until(|| server.queued() == 0).await;
        drop(guard);
        is_free(&locks, KEY).await;
        assert!(watcher.has_seen_nothing(), "{how:?}");
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

#[tokio::test]
async fn an_unread_answer_does_not_keep_the_lock() {
    let server = MemoryServer::new();
    let layer = LockLayer::new(server.locks(), KEY).unwrap();
    let app = Router::new().route("/", get(|| async { Bytes::from(vec![b'x'; 64 << 20]) }).layer(layer));
    let address = serve(app).await;
    let mut client = Client::asks(address, "GET /", "").await;
    // The answer has begun, so the handler has ended.
    client.reads_until("\r\n\r\n").await;
    is_free(&server.locks(), KEY).await;
}

#[tokio::test]
async fn an_answer_that_is_not_read_keeps_its_slot_until_the_client_leaves() {
    for how in [Leave::Fin, Leave::Rst] {
        let server = MemoryServer::new();
        let layer = SlotLayer::global(server.locks().slots("all", 1).unwrap());
        let endless = || async {
            let chunks = futures_util::stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 1024])));
            Body::from_stream(chunks)
        };
        let address = serve(Router::new().route("/", get(endless).layer(layer))).await;
        let mut client = Client::asks(address, "GET /", "").await;
        client.reads_until("\r\n\r\n").await;
        assert_eq!(ask(address, "GET /").await.status(), 503);
        assert!(client.leave(how).await.is_none());
        let slots = server.locks().slots("all", 1).unwrap();
        drop(in_time(slots.acquire().without_limit()).await.unwrap());
    }
}

#[tokio::test]
async fn a_pipelined_request_is_handled_after_the_first_and_both_free_the_lock() {
    let (address, mut watcher, server) = locked(|layer| layer).await;
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
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_at_random_leave_nothing_held() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let server = MemoryServer::new();
    let locks = server.locks();
    let app = random_app(&locks);
    let address = serve(app).await;
    let request = b"POST /work HTTP/1.1\r\nhost: t\r\ncontent-length: 20\r\n\r\n01234567890123456789";
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..300 {
        let how = WAYS_TO_LEAVE[random.usize(..3)];
        let sent = random.usize(..=request.len());
        let yields = random.usize(..50);
        clients.spawn(async move {
            let mut client = Client::connect(address).await;
            client.send(&request[..sent]).await;
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            let _rest = client.leave(how).await;
        });
    }
    while let Some(client) = in_time(clients.join_next()).await {
        client.unwrap();
    }
    // A lock or slot that somebody still had would keep this waiting.
    is_free(&server.locks(), KEY).await;
    let slots = server.locks().slots("all", 3).unwrap();
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(in_time(slots.acquire().without_limit()).await.unwrap());
    }
    drop(all);
    in_time(locks.close()).await;
    assert_eq!(server.queued(), 0, "seed {seed}");
}

fn random_app(locks: &Locks) -> Router {
    let lock = LockLayer::new(locks.clone(), KEY)
        .unwrap()
        .wait(Duration::from_millis(20));
    let slot = SlotLayer::global(locks.slots("all", 3).unwrap()).wait(Duration::from_millis(20));
    let handler = |body: Bytes| async move {
        tokio::task::yield_now().await;
        body
    };
    Router::new().route("/work", post(handler).layer((slot, lock)))
}

#[tokio::test]
async fn a_handler_that_panics_frees_lock_and_slot() {
    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        let server = MemoryServer::new();
        let locks = server.locks();
        let lock = LockLayer::new(locks.clone(), KEY).unwrap().on_disconnect(on_disconnect);
        let slot = SlotLayer::global(locks.slots("all", 1).unwrap()).on_disconnect(on_disconnect);
        let (stage, mut watcher) = stage();
        let bare = stage.clone();
        let app = Router::new()
            .route(
                "/caught",
                get(move || panics(stage)).layer((CatchPanicLayer::new(), slot.clone(), lock.clone())),
            )
            .route("/bare", get(move || panics(bare)).layer((slot, lock)));
        let address = serve(app).await;

        assert_eq!(ask(address, "GET /caught").await.status(), 500);
        watcher.sees(Event::Entered).await;
        is_free(&server.locks(), KEY).await;
        // Without anybody to catch it the connection ends.
        assert_eq!(ask(address, "GET /bare").await.0, "");
        watcher.sees(Event::Entered).await;
        is_free(&server.locks(), KEY).await;
        let slots = server.locks().slots("all", 1).unwrap();
        drop(in_time(slots.acquire().without_limit()).await.unwrap());
    }
}

async fn panics(stage: Stage) {
    stage.tell(Event::Entered);
    panic!("as the test wants");
}
