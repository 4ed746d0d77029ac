//! Several workers of one server, and two instances of one service.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    thread,
};

use actix_web::{App, HttpServer, web};
use latchwork_actix::{HeldPermit, LockMiddleware, SlotMiddleware, key::param};
use latchwork_core::memory::MemoryServer;
use latchwork_harness::http::{Client, Event, Stage, Watcher, ask, stage};

use crate::support::{are_free, start};

struct Service {
    address: SocketAddr,
    watcher: Watcher,
    threads: Arc<Mutex<HashSet<thread::ThreadId>>>,
}

/// One instance with four workers: five slots in all, and a lock for each order.
fn service(server: &MemoryServer) -> Service {
    let (stage, watcher) = stage();
    let threads = Arc::<Mutex<HashSet<_>>>::default();
    let five = SlotMiddleware::global(server.locks().slots("ai", 5).unwrap());
    let per_order = LockMiddleware::new(server.locks(), ("order", param("id"))).unwrap();
    let here = (stage, Arc::clone(&threads));
    let app = move || {
        App::new()
            .app_data(web::Data::new(here.clone()))
            .service(web::resource("/ai").wrap(five.clone()).route(web::get().to(ai)))
            .service(
                web::resource("/orders/{id}")
                    .wrap(per_order.clone())
                    .route(web::post().to(charge)),
            )
    };
    let address = start!(HttpServer::new(app).workers(4));
    Service {
        address,
        watcher,
        threads,
    }
}

type Here = web::Data<(Stage, Arc<Mutex<HashSet<thread::ThreadId>>>)>;

async fn ai(held: HeldPermit, here: Here) -> String {
    here.1.lock().unwrap().insert(thread::current().id());
    here.0.play().await;
    held.slot().to_string()
}

async fn charge(here: Here) -> &'static str {
    here.1.lock().unwrap().insert(thread::current().id());
    here.0.play().await;
    "charged"
}

#[actix_web::test]
async fn four_workers_share_a_limit_of_five() {
    let server = MemoryServer::new();
    let mut service = service(&server);
    let mut inside = Vec::new();
    for _ in 0..5 {
        inside.push(Client::asks(service.address, "GET /ai", "connection: close\r\n").await);
        service.watcher.sees(Event::Entered).await;
    }
    assert_eq!(service.threads.lock().unwrap().len(), 4, "each worker is at it");
    // Whichever worker they come to.
    for _ in 0..8 {
        let refused = ask(service.address, "GET /ai").await;
        assert_eq!((refused.status(), refused.header("retry-after")), (503, Some("1")));
    }
    service.watcher.lets_go(5);
    let mut slots = HashSet::new();
    for client in inside {
        let answer = client.answer().await;
        assert_eq!(answer.status(), 200);
        slots.insert(answer.body().to_owned());
    }
    assert_eq!(slots.len(), 5);
    are_free(&server.locks().slots("ai", 5).unwrap(), 5).await;
}

#[actix_web::test]
async fn a_lock_excludes_over_workers_and_instances_and_by_key_only() {
    let server = MemoryServer::new();
    let (mut one, other) = (service(&server), service(&server));
    let first = Client::asks(one.address, "POST /orders/42", "connection: close\r\n").await;
    one.watcher.sees(Event::Entered).await;
    for _ in 0..4 {
        for instance in [one.address, other.address] {
            // Another spelling of the same order.
            let answer = ask(instance, "POST /orders/4%32").await;
            assert_eq!(answer.status(), 409);
            assert_eq!(answer.header("content-type"), Some("application/problem+json"));
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert!(answer.body().contains(r#""status":409"#), "{answer:?}");
        }
    }
    other.watcher.lets_go(2);
    assert_eq!(ask(other.address, "POST /orders/7").await.status(), 200);
    one.watcher.lets_go(1);
    assert_eq!(first.answer().await.status(), 200);
    assert_eq!(ask(other.address, "POST /orders/42").await.status(), 200);
}
