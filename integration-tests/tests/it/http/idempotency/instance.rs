//! One instance of a service that takes payments.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use deadpool_postgres::{Manager, Pool};
use latchwork_core::Locks;
use latchwork_harness::http::{Event, Stage, Watcher, stage};
use latchwork_postgres::{
    Postgres, PostgresOptions,
    transaction::{DeadpoolTx, PooledTx},
};
use latchwork_tower::{IdempotencyLayer, OnDisconnect, key::header};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_postgres::NoTls;

use crate::onlooker::{SOON, connect};

type LockedTx = latchwork_tower::LockedTx<PooledTx>;
type Layer = IdempotencyLayer<DeadpoolTx>;

/// The most bytes of a body that the instance reads or keeps.
pub(super) const CAP: usize = 1000;

pub(super) struct Instance {
    pub(super) address: SocketAddr,
    watcher: Watcher,
    /// How often the handler that works elsewhere has worked.
    pub(super) mails: Arc<AtomicUsize>,
    postgres: Postgres,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Service {
    stage: Stage,
    mails: Arc<AtomicUsize>,
}

impl Instance {
    pub(super) async fn start(url: &str, options: PostgresOptions) -> Self {
        let manager = Manager::new(url.parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(8).build().unwrap();
        let postgres = connect(url, options).await;
        let (stage, watcher) = stage();
        let mails = Arc::new(AtomicUsize::new(0));
        let service = Service {
            stage,
            mails: Arc::clone(&mails),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app(&pool, &postgres.locks(), service);
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            watcher,
            mails,
            postgres,
            server,
        }
    }

    pub(super) async fn sees(&mut self, event: Event) {
        self.watcher.sees(event).await;
    }

    pub(super) fn lets_go(&self, handlers: usize) {
        self.watcher.lets_go(handlers);
    }

    pub(super) async fn close(self) {
        self.postgres.locks().close_within(SOON).await.unwrap();
        self.server.abort();
    }
}

fn app(pool: &Pool, locks: &Locks, service: Service) -> Router {
    let layer = || {
        Layer::new(pool.clone(), header("x-user").optional())
            .unwrap()
            .max_request_body(CAP)
            .max_response_body(CAP)
    };
    let leaves = layer().on_disconnect(OnDisconnect::Cancel);
    let external = layer().external(locks.clone()).on_disconnect(OnDisconnect::Cancel);
    Router::new()
        .route("/payments", post(pay).get(|| async { "all of them" }).layer(layer()))
        .route("/payments/{id}/refund", post(pay).layer(layer()))
        .route("/slow", post(slow).layer(layer()))
        .route("/leaves", post(slow).layer(leaves))
        .route("/fails", post(fails).layer(layer()))
        .route("/deferred", post(deferred).layer(layer()))
        .route("/large", post(large).layer(layer()))
        .route("/stream", post(stream).layer(layer()))
        .route("/mails", post(mails).layer(external.clone()))
        .route("/slow-mails", post(slow_mails).layer(external))
        .route("/optional", post(|| async { "no key" }).layer(layer().optional()))
        .route("/free", get(|| async { "free" }))
        .with_state(service)
}

/// Stores a payment, and answers with the body that it was sent.
async fn pay(tx: LockedTx, body: Bytes) -> Response {
    let id = insert(&tx).await;
    let headers = [
        (header::LOCATION, format!("/payments/{id}")),
        (header::CONTENT_TYPE, "application/x-echo".to_owned()),
        (header::SET_COOKIE, "session=1".to_owned()),
    ];
    (StatusCode::CREATED, headers, body).into_response()
}

async fn slow(State(service): State<Service>, tx: LockedTx) -> String {
    let id = insert(&tx).await;
    service.stage.play().await;
    format!("payment {id}")
}

async fn fails(tx: LockedTx) -> StatusCode {
    insert(&tx).await;
    StatusCode::INTERNAL_SERVER_ERROR
}

/// Stores what the server refuses at COMMIT.
async fn deferred(tx: LockedTx) -> &'static str {
    tx.execute("INSERT INTO refunds VALUES (-1)", &[]).await.unwrap();
    "stored"
}

async fn large(tx: LockedTx) -> Vec<u8> {
    insert(&tx).await;
    vec![b'x'; CAP + 1]
}

async fn stream(tx: LockedTx) -> Body {
    insert(&tx).await;
    let parts = (0..3).map(|part| Ok::<_, Infallible>(format!("part {part}\n")));
    Body::from_stream(futures_util::stream::iter(parts))
}

async fn mails(State(service): State<Service>, body: Bytes) -> StatusCode {
    service.mails.fetch_add(1, Ordering::SeqCst);
    if body == "bounces" {
        StatusCode::BAD_GATEWAY
    } else {
        StatusCode::ACCEPTED
    }
}

async fn slow_mails(State(service): State<Service>) -> StatusCode {
    service.mails.fetch_add(1, Ordering::SeqCst);
    service.stage.play().await;
    StatusCode::ACCEPTED
}

async fn insert(tx: &PooledTx) -> i64 {
    let row = tx
        .query_one("INSERT INTO payments DEFAULT VALUES RETURNING id", &[])
        .await;
    row.unwrap().get(0)
}
