//! One instance of a service with locks and slots.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::StatusCode,
    routing::{get, post},
};
use latchwork_core::Locks;
use latchwork_postgres::{Postgres, PostgresOptions};
use latchwork_tower::{HeldLock, HeldPermit, LockLayer, OnDisconnect, SlotLayer, key::param};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::timeout,
};

use crate::onlooker::{SOON, connect};

pub(super) const SLOTS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Entered,
    Done,
    Dropped,
}

pub(super) struct Instance {
    pub(super) address: SocketAddr,
    events: mpsc::UnboundedReceiver<Event>,
    go: Arc<Semaphore>,
    postgres: Postgres,
    server: JoinHandle<()>,
}

impl Instance {
    pub(super) async fn start(url: &str, options: PostgresOptions, inside: &Arc<AtomicUsize>) -> Self {
        let postgres = connect(url, options).await;
        let (to, events) = mpsc::unbounded_channel();
        let go = Arc::new(Semaphore::new(0));
        let stage = Stage::new(to, Arc::clone(&go));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app(&postgres.locks(), stage, inside);
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            events,
            go,
            postgres,
            server,
        }
    }

    pub(super) async fn sees(&mut self, event: Event) {
        let seen = timeout(SOON, self.events.recv()).await.expect("it happens in time");
        assert_eq!(seen, Some(event));
    }

    pub(super) fn lets_go(&self, handlers: usize) {
        self.go.add_permits(handlers);
    }

    /// Waits until everything that was held is given up, and ends the sessions.
    pub(super) async fn close(self) {
        self.postgres.locks().close_within(SOON).await.unwrap();
        self.server.abort();
    }
}

/// Where a handler waits until the test lets it go.
#[derive(Clone)]
pub(super) struct Stage {
    events: mpsc::UnboundedSender<Event>,
    go: Arc<Semaphore>,
}

impl Stage {
    pub(super) const fn new(events: mpsc::UnboundedSender<Event>, go: Arc<Semaphore>) -> Self {
        Self { events, go }
    }

    pub(super) async fn play(self) {
        let mut end = End {
            events: self.events,
            event: Event::Dropped,
        };
        end.tell(Event::Entered);
        self.go.acquire().await.unwrap().forget();
        end.event = Event::Done;
    }
}

struct End {
    events: mpsc::UnboundedSender<Event>,
    event: Event,
}

impl End {
    fn tell(&self, event: Event) {
        // The test may be over.
        let _ = self.events.send(event);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.tell(self.event);
    }
}

fn app(locks: &Locks, stage: Stage, inside: &Arc<AtomicUsize>) -> Router {
    let alone = {
        let inside = Arc::clone(inside);
        move |lock: HeldLock| alone(lock, inside)
    };
    let order = LockLayer::new(locks.clone(), ("order", param("id"))).unwrap();
    let patient = LockLayer::new(locks.clone(), "patient")
        .unwrap()
        .wait(Duration::from_secs(15));
    let complete = LockLayer::new(locks.clone(), "patient")
        .unwrap()
        .wait(Duration::from_millis(50))
        .on_disconnect(OnDisconnect::Complete);
    let slots = SlotLayer::global(locks.slots("streams", SLOTS).unwrap());
    Router::new()
        .route("/orders/{id}/charge", post(move || stage.play()).layer(order))
        .route("/patient", post(alone.clone()).layer(patient))
        .route("/complete", post(alone).layer(complete))
        .route("/stream", get(stream).layer(slots))
}

/// Says whether it is alone, over all instances that share the counter.
async fn alone(lock: HeldLock, inside: Arc<AtomicUsize>) -> StatusCode {
    let others = inside.fetch_add(1, Ordering::SeqCst);
    let _leaves = Leaves(inside);
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    if others == 0 && lock.is_held() {
        StatusCode::OK
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    }
}

struct Leaves(Arc<AtomicUsize>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A body without an end.
async fn stream(held: HeldPermit) -> ([(&'static str, String); 1], Body) {
    let chunks = futures_util::stream::repeat_with(|| Ok::<_, Infallible>("more of it\n"));
    ([("x-slot", held.slot().to_string())], Body::from_stream(chunks))
}
