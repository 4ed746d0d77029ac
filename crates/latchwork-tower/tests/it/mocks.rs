//! Readiness, clones and errors, with mocked services.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use axum::body::Body;
use http::{Request, Response};
use latchwork_core::{Key, Locks, memory::MemoryServer};
use latchwork_tower::{LockLayer, OnDisconnect, SlotLayer};
use tokio::sync::Semaphore;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};
use tower_test::mock;

use crate::support::{in_time, is_held};

type Mock = mock::Mock<Request<Body>, Response<Body>>;
type Mocked = mock::Handle<Request<Body>, Response<Body>>;

const KEY: Key = Key::bigint(1);

fn request() -> Request<Body> {
    Request::new(Body::empty())
}

#[tokio::test]
async fn being_ready_is_the_inner_services_affair_and_reserves_nothing() {
    let locks = Locks::in_memory();
    let layer = LockLayer::new(locks.clone(), KEY).unwrap();
    let slot = SlotLayer::global(locks.slots("all", 1).unwrap());
    let (service, mut handle): (Mock, Mocked) = mock::pair();
    handle.allow(0);
    let mut service = mock::Spawn::new(slot.layer(layer.layer(service)));
    assert_pending!(service.poll_ready());
    handle.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.poll_ready());
    assert!(!is_held(&locks, KEY).await);
    assert!(locks.slots("all", 1).unwrap().try_acquire().await.unwrap().is_some());
}

/// A mock panics when it is called without having been ready.
#[tokio::test]
async fn the_readied_service_is_called_and_not_its_clone() {
    let locks = Locks::in_memory();
    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        let lock = LockLayer::new(locks.clone(), KEY).unwrap().on_disconnect(on_disconnect);
        let slot = SlotLayer::global(locks.slots("all", 1).unwrap()).on_disconnect(on_disconnect);
        let (service, mut handle): (Mock, Mocked) = mock::pair();
        handle.allow(3);
        let mut service = slot.layer(lock.layer(service));
        for _ in 0..3 {
            let answer = service.ready().await.unwrap().call(request());
            let answers = async {
                let (_, reply) = handle.next_request().await.unwrap();
                reply.send_response(Response::new(Body::empty()));
            };
            let (answer, ()) = in_time(async { tokio::join!(answer, answers) }).await;
            assert_eq!(answer.unwrap().status(), 200);
        }
        let mut service = mock::Spawn::new(service);
        assert_pending!(service.poll_ready());
    }
}

#[tokio::test]
async fn a_limit_inside_counts_the_requests_that_run() {
    let locks = Locks::in_memory();
    let (service, mut handle): (Mock, Mocked) = mock::pair();
    handle.allow(10);
    let by_path = latchwork_tower::key::segment(0);
    let service = LockLayer::new(locks, by_path)
        .unwrap()
        .layer(ConcurrencyLimitLayer::new(1).layer(service));
    let (mut one, mut other) = (mock::Spawn::new(service.clone()), mock::Spawn::new(service));
    assert_ready_ok!(one.poll_ready());
    assert_pending!(other.poll_ready());
    let mut first = task::spawn(one.call(Request::get("/a").body(Body::empty()).unwrap()));
    assert_pending!(first.poll());
    assert_pending!(other.poll_ready());
    let (_, reply) = handle.next_request().await.unwrap();
    reply.send_response(Response::new(Body::empty()));
    assert_ready_ok!(first.poll());
    drop(first);
    assert_ready_ok!(other.poll_ready());
}

#[tokio::test]
async fn the_inner_services_errors_pass_and_free_what_was_held() {
    let locks = Locks::in_memory();
    let lock = LockLayer::new(locks.clone(), KEY).unwrap();
    let slot = SlotLayer::global(locks.slots("all", 1).unwrap());
    let failing = service_fn(async |_: Request<Body>| Err::<Response<Body>, _>("as the test wants"));
    let mut service = slot.layer(lock.layer(failing));
    for _ in 0..2 {
        let error: &str = service.ready().await.unwrap().call(request()).await.err().unwrap();
        assert_eq!(error, "as the test wants");
        assert!(!is_held(&locks, KEY).await);
    }
}

#[tokio::test]
async fn a_future_that_is_dropped_after_any_number_of_polls_leaves_nothing() {
    let server = MemoryServer::new();
    let locks = server.locks();
    for on_disconnect in [OnDisconnect::Cancel, OnDisconnect::Complete] {
        let lock = LockLayer::new(locks.clone(), KEY).unwrap().on_disconnect(on_disconnect);
        let slot = SlotLayer::global(locks.slots("all", 1).unwrap()).on_disconnect(on_disconnect);
        let slow = service_fn(async |_: Request<Body>| {
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        });
        let service = slot.layer(lock.layer(slow));
        for polls in 0.. {
            let mut call = task::spawn(service.clone().oneshot(request()));
            let mut done = false;
            for _ in 0..polls {
                done = call.poll().is_ready();
                if done {
                    break;
                }
                // What runs in a task gets its turn.
                tokio::task::yield_now().await;
            }
            drop(call);
            in_time(async {
                drop(server.locks().acquire(KEY).without_limit().await.unwrap());
                drop(
                    server
                        .locks()
                        .slots("all", 1)
                        .unwrap()
                        .acquire()
                        .without_limit()
                        .await
                        .unwrap(),
                );
            })
            .await;
            if done {
                break;
            }
        }
    }
}

/// State that each clone had for itself would limit nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_share_one_state_for_1500_requests_at_once() {
    const REQUESTS: usize = 1500;
    let locks = Locks::in_memory();
    let inside = Arc::new(AtomicUsize::new(0));
    let go = Arc::new(Semaphore::new(0));
    let entered = Arc::new(Semaphore::new(0));
    let handler = service_fn({
        let (inside, go, entered) = (Arc::clone(&inside), Arc::clone(&go), Arc::clone(&entered));
        move |_: Request<Body>| {
            let (inside, go, entered) = (Arc::clone(&inside), Arc::clone(&go), Arc::clone(&entered));
            async move {
                inside.fetch_add(1, Ordering::SeqCst);
                entered.add_permits(1);
                go.acquire().await.unwrap().forget();
                Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
            }
        }
    });
    let service = SlotLayer::global(locks.slots("all", 10).unwrap()).layer(handler);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..REQUESTS {
        asking.spawn(service.clone().oneshot(request()));
    }
    let mut refused = 0;
    while refused < REQUESTS - 10 {
        let answer = in_time(asking.join_next()).await.unwrap().unwrap().unwrap();
        assert_eq!(answer.status(), 503);
        refused += 1;
    }
    in_time(entered.acquire_many(10)).await.unwrap().forget();
    assert_eq!(inside.load(Ordering::SeqCst), 10);
    go.add_permits(10);
    for answer in asking.join_all().await {
        assert_eq!(answer.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_future_that_is_polled_again_after_its_end_does_not_panic() {
    let layer = LockLayer::new(Locks::in_memory(), latchwork_tower::key::header("x-key")).unwrap();
    let service = service_fn(async |_: Request<Body>| Ok::<_, std::convert::Infallible>(Response::new(Body::empty())));
    let mut refused = task::spawn(layer.layer(service).call(request()));
    let Poll::Ready(Ok(response)) = refused.poll() else {
        panic!("a bad key is refused at once")
    };
    assert_eq!(response.status(), 400);
    assert_pending!(refused.poll());
}
