//! Two instances of one service on one lock server.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{Router, http::StatusCode, routing::get};
use latchwork_core::memory::MemoryServer;
use latchwork_tower::{HeldPermit, LockLayer, SlotLayer, key::param};

use crate::support::{Client, Event, ask, serve, stage};

#[tokio::test]
async fn a_lock_excludes_over_instances_and_by_key_only() {
    let server = MemoryServer::new();
    let (stage, mut watcher) = stage();
    let instance = || {
        let stage = stage.clone();
        let layer = LockLayer::new(server.locks(), ("order", param("id"))).unwrap();
        let handler = move || async move { stage.play().await };
        serve(Router::new().route("/orders/{id}", get(handler)).route_layer(layer))
    };
    let (one, other) = (instance().await, instance().await);
    let first = Client::asks(one, "GET /orders/42", "connection: close\r\n").await;
    watcher.sees(Event::Entered).await;
    for instance in [one, other] {
        // Another spelling of the same order.
        let answer = ask(instance, "GET /orders/4%32").await;
        assert_eq!(answer.status(), 409);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert!(answer.body().contains(r#""status":409"#), "{answer:?}");
    }
    watcher.lets_go(3);
    assert_eq!(ask(other, "GET /orders/7").await.status(), 200);
    assert_eq!(first.answer().await.status(), 200);
    assert_eq!(ask(other, "GET /orders/42").await.status(), 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_n_slots_over_instances() {
    const SLOTS: u32 = 3;
    let server = MemoryServer::new();
    let busy: Arc<[AtomicUsize]> = (0..SLOTS).map(|_| AtomicUsize::new(0)).collect();
    let used = Arc::new(AtomicUsize::new(0));
    let instance = || {
        let (busy, used) = (Arc::clone(&busy), Arc::clone(&used));
        let handler = move |held: HeldPermit| async move {
            let slot = held.slot() as usize;
            // Slots are numbered apart, so that nobody else is here is the limit itself.
            if busy[slot].fetch_add(1, Ordering::SeqCst) != 0 || !held.is_held() {
                return StatusCode::IM_A_TEAPOT;
            }
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            busy[slot].fetch_sub(1, Ordering::SeqCst);
            used.fetch_or(1 << slot, Ordering::SeqCst);
            StatusCode::OK
        };
        let layer =
            SlotLayer::global(server.locks().slots("all", SLOTS).unwrap()).wait(std::time::Duration::from_secs(20));
        serve(Router::new().route("/", get(handler).layer(layer)))
    };
    let instances = [instance().await, instance().await];
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..200 {
        asking.spawn(async move { ask(instances[number % 2], "GET /").await.status() });
    }
    for status in asking.join_all().await {
        assert_eq!(status, 200);
    }
    assert_eq!(used.load(Ordering::SeqCst), (1 << SLOTS) - 1);
}
