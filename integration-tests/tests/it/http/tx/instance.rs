//! One instance of a service whose requests have transactions.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    routing::post,
};
use deadpool_postgres::{Manager, Pool};
use latchwork_postgres::transaction::{DeadpoolTx, PooledTx};
use latchwork_tower::{
    ExtractError, OnDisconnect, TxLockLayer,
    key::{ExtractKey, param},
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::timeout,
};
use tokio_postgres::NoTls;

use super::super::instance::{Event, Stage};
use crate::onlooker::SOON;

type LockedTx = latchwork_tower::LockedTx<PooledTx>;
type Layer = TxLockLayer<DeadpoolTx>;

pub(super) struct Instance {
    pub(super) address: SocketAddr,
    pub(super) pool: Pool,
    events: mpsc::UnboundedReceiver<Event>,
    go: Arc<Semaphore>,
    server: JoinHandle<()>,
}

impl Instance {
    pub(super) async fn start(url: &str, size: usize) -> Self {
        let manager = Manager::new(url.parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(size).build().unwrap();
        let (to, events) = mpsc::unbounded_channel();
        let go = Arc::new(Semaphore::new(0));
        let stage = Stage::new(to, Arc::clone(&go));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app(&pool, stage);
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            pool,
            events,
            go,
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
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn app(pool: &Pool, stage: Stage) -> Router {
    let order = Layer::new(pool.clone(), ("order", param("id"))).unwrap();
    Router::new()
        .route("/orders/{id}/charge", post(charge).layer(order))
        .with_state(stage)
}

/// Stores a charge when the test lets it go on.
async fn charge(State(stage): State<Stage>, tx: LockedTx) -> StatusCode {
    insert(&tx).await;
    stage.play().await;
    StatusCode::OK
}

async fn insert(tx: &PooledTx) {
    tx.execute("INSERT INTO charges (id) VALUES (1)", &[]).await.unwrap();
}
