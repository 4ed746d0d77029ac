//! A service for each policy. Each handles the order that the metadata `x-key` names, and ends as `x-ends` says.

use deadpool_postgres::Pool;
use latchwork_core::{
    Locks,
    rate::{Quota, RateDecision, RateLimits},
};
use latchwork_harness::{
    grpc::{Handler, Unary},
    http::Stage,
};
use latchwork_postgres::transaction::{DeadpoolTx, PooledTx};
use latchwork_tower::{HeldLock, LockLayer, RateLimitLayer, SlotLayer, TxLockLayer, key::header};
use tonic::{
    Request, Response, Status,
    server::NamedService,
    service::LayerExt,
    transport::{Server, server::Router},
};

type LockedTx = latchwork_tower::LockedTx<PooledTx>;

/// Under a lock on the order: waits until the test lets it go.
pub(super) const ORDER: &str = "/test.Orders/Pack";
/// Under the only slot: the same.
pub(super) const STREAM: &str = "/test.Streams/Read";
/// Two for each order, and nothing comes back during a test; it says whether the limit is degraded.
pub(super) const OPEN: &str = "/test.Open/Search";
/// The same, and none without the database.
pub(super) const CLOSED: &str = "/test.Closed/Search";
/// In a transaction with a lock on the order: stores a charge, and waits until the test lets it go.
pub(super) const CHARGE: &str = "/test.Charges/Charge";
/// In such a transaction: stores what fails at COMMIT.
pub(super) const ORPHAN: &str = "/test.Orphans/Charge";
/// In such a transaction, which waits for its turn: adds one to what it has read.
pub(super) const ADD: &str = "/test.Counters/Add";

macro_rules! names {
    ($($service:ident: $name:literal),+ $(,)?) => {$(
        enum $service {}

        impl NamedService for $service {
            const NAME: &'static str = $name;
        }
    )+};
}

names!(
    Orders: "test.Orders",
    Streams: "test.Streams",
    Open: "test.Open",
    Closed: "test.Closed",
    Charges: "test.Charges",
    Orphans: "test.Orphans",
    Counters: "test.Counters",
);

pub(super) fn router(locks: &Locks, pool: &Pool, rates: &[RateLimits; 2], stage: &Stage) -> Router {
    let order = LockLayer::new(locks.clone(), ("order", header("x-key"))).unwrap();
    let slot = SlotLayer::global(locks.slots("streams", 1).unwrap());
    let rarely = || Quota::per_day(1).unwrap().with_burst(2).unwrap();
    let [open, closed] = rates
        .each_ref()
        .map(|rates| RateLimitLayer::new(rates.clone(), ("rate", header("x-key")), rarely()).unwrap());
    let tx = || TxLockLayer::<DeadpoolTx>::new(pool.clone(), ("charge", header("x-key"))).unwrap();
    Server::builder()
        .add_service(order.named_layer(Unary::<Orders, _>::new(Waits(stage.clone()))))
        .add_service(slot.named_layer(Unary::<Streams, _>::new(Waits(stage.clone()))))
        .add_service(open.named_layer(Unary::<Open, _>::new(Tells)))
        .add_service(closed.named_layer(Unary::<Closed, _>::new(Tells)))
        .add_service(tx().named_layer(Unary::<Charges, _>::new(Charge(stage.clone()))))
        .add_service(tx().named_layer(Unary::<Orphans, _>::new(Orphan)))
        .add_service(
            tx().wait(super::PATIENT)
                .answer_within(super::PATIENT)
                .named_layer(Unary::<Counters, _>::new(Add)),
        )
}

#[derive(Clone)]
struct Waits(Stage);

impl Handler for Waits {
    async fn handle(self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        self.0.play().await;
        let held = request.extensions().get().is_none_or(|lock: &HeldLock| lock.is_held());
        if held {
            end(&request)
        } else {
            Err(Status::data_loss("not held"))
        }
    }
}

#[derive(Clone)]
struct Tells;

impl Handler for Tells {
    async fn handle(self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        let decision: &RateDecision = request.extensions().get().unwrap();
        Ok(Response::new(vec![u8::from(decision.is_degraded())]))
    }
}

#[derive(Clone)]
struct Charge(Stage);

impl Handler for Charge {
    async fn handle(self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        let tx = transaction(&request);
        tx.execute("INSERT INTO charges (id) VALUES (1)", &[]).await.unwrap();
        self.0.play().await;
        end(&request)
    }
}

#[derive(Clone)]
struct Orphan;

impl Handler for Orphan {
    async fn handle(self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        let orphan = "INSERT INTO charges (id, order_id) VALUES (1, 999)";
        transaction(&request).execute(orphan, &[]).await.unwrap();
        end(&request)
    }
}

#[derive(Clone)]
struct Add;

impl Handler for Add {
    async fn handle(self, request: Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
        let tx = transaction(&request);
        let n: i64 = tx.query_one("SELECT n FROM counter", &[]).await.unwrap().get(0);
        tokio::task::yield_now().await;
        tx.execute("UPDATE counter SET n = $1", &[&(n + 1)]).await.unwrap();
        end(&request)
    }
}

fn transaction(request: &Request<Vec<u8>>) -> LockedTx {
    LockedTx::take_from(request.extensions()).unwrap().unwrap()
}

fn end(request: &Request<Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
    if request.metadata().get("x-ends").is_some_and(|how| how == "badly") {
        Err(Status::failed_precondition("the handler was told to fail"))
    } else {
        Ok(Response::new(Vec::new()))
    }
}
