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
use latchwork_tower::{OnDisconnect, TxLockLayer, key::param};
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
    let layer = |key| Layer::new(pool.clone(), key).unwrap();
    let order = || Layer::new(pool.clone(), ("order", param("id"))).unwrap();
    let hurried = order().answer_within(Duration::from_millis(300));
    let asleep = hurried.clone();
    let complete = order().on_disconnect(OnDisconnect::Complete);
    let joined = layer("joined").join_open().wait(Duration::from_secs(15));
    let random = Layer::new(pool.clone(), ("random", param("id"))).unwrap();
    let random = random.wait(Duration::from_millis(20));
    let all_random = random.clone().on_disconnect(OnDisconnect::Complete);
    Router::new()
        .route("/orders/{id}/charge", post(charge).layer(order()))
        .route("/orders/{id}/complete", post(charge).layer(complete))
        .route("/orders/{id}/hurried", post(charge).layer(hurried))
        .route("/orders/{id}/asleep", post(asleep_in_the_server).layer(asleep))
        .route("/orders/{id}/lost", post(lost).layer(order()))
        .route("/orders/{id}/spawned", post(spawned).layer(order()))
        .route("/add", post(add).layer(layer("counter").wait(Duration::from_secs(15))))
        .route("/joined/{id}", post(add).layer((order(), joined)))
        .route("/status/{code}", post(status).layer(layer("status")))
        .route("/orphan", post(orphan).layer(layer("orphan")))
        .route("/swallowed", post(swallowed).layer(layer("swallowed")))
        .route("/savepoint", post(savepoint).layer(layer("savepoint")))
        .route("/ended/{how}", post(ended).layer(layer("ended")))
        .route("/panics", post(panics).layer(layer("panics")))
        .route("/random/{id}", post(two_rows).layer(random))
        .route("/all-random/{id}", post(two_rows).layer(all_random))
        .with_state(stage)
}

/// Stores a charge when the test lets it go on.
async fn charge(State(stage): State<Stage>, tx: LockedTx) {
    insert(&tx).await;
    stage.play().await;
}

/// Runs a statement that takes longer than any test.
async fn asleep_in_the_server(tx: LockedTx) {
    insert(&tx).await;
    tx.batch_execute("SELECT pg_sleep(600)").await.unwrap();
}

/// Answers when its connection has ended, as if nothing had happened.
async fn lost(State(stage): State<Stage>, tx: LockedTx) {
    insert(&tx).await;
    stage.play().await;
    while !tx.is_closed() {
        tokio::task::yield_now().await;
    }
}

/// Leaves its transaction to a task, which ends when the test lets it.
async fn spawned(State(stage): State<Stage>, tx: LockedTx) {
    insert(&tx).await;
    tokio::spawn(async move {
        stage.play().await;
        drop(tx);
    });
}

/// Adds one to what was read, a while later.
async fn add(tx: LockedTx) {
    let n: i64 = tx.query_one("SELECT n FROM counter", &[]).await.unwrap().get(0);
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    tx.execute("UPDATE counter SET n = $1", &[&(n + 1)]).await.unwrap();
}

async fn status(Path(code): Path<u16>, tx: LockedTx) -> StatusCode {
    insert(&tx).await;
    StatusCode::from_u16(code).unwrap()
}

/// What it stores fails at COMMIT, and not before.
async fn orphan(tx: LockedTx) {
    let orphan = "INSERT INTO charges (id, order_id) VALUES (1, 999)";
    tx.execute(orphan, &[]).await.unwrap();
}

/// Goes on after an error of the database.
async fn swallowed(tx: LockedTx) {
    insert(&tx).await;
    assert!(tx.batch_execute("SELECT 1 / 0").await.is_err());
}

/// Undoes its error.
async fn savepoint(tx: LockedTx) {
    insert(&tx).await;
    tx.batch_execute("SAVEPOINT before").await.unwrap();
    assert!(tx.batch_execute("SELECT 1 / 0").await.is_err());
    tx.batch_execute("ROLLBACK TO before").await.unwrap();
}

/// Ends the transaction, which is not its own to end.
async fn ended(Path(how): Path<String>, tx: LockedTx) {
    insert(&tx).await;
    tx.batch_execute(&how).await.unwrap();
    insert(&tx).await;
}

async fn panics(State(_): State<Stage>, tx: LockedTx) {
    insert(&tx).await;
    panic!("as the test wants");
}

/// Stores two rows, one after the other, that make no sense alone.
async fn two_rows(tx: LockedTx) {
    let id = fastrand::i64(..);
    for _ in 0..2 {
        tx.execute("INSERT INTO charges (id) VALUES ($1)", &[&id])
            .await
            .unwrap();
    }
}

async fn insert(tx: &PooledTx) {
    tx.execute("INSERT INTO charges (id) VALUES (1)", &[]).await.unwrap();
}
