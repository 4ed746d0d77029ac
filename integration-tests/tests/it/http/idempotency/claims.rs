//! Claims of handlers that work outside of the database, where the database is slow to store them: no handler has run, so
//! nobody may be told for a day that one may have.

use std::time::Duration;

use deadpool_postgres::{Manager, Pool};
use latchwork_core::Locks;
use latchwork_harness::Cluster;
use latchwork_http::{IdempotencyPolicy, Rejection, RejectionKind, http::Request, idempotency::Begun, key::header};
use latchwork_postgres::{schema, transaction::DeadpoolTx};
use tokio_postgres::NoTls;

use crate::{
    http::tx::{is_clean, slow_commit},
    onlooker::{Onlooker, connect, eventually, quick},
};

type Policy = IdempotencyPolicy<Request<()>, DeadpoolTx>;

/// A pool of one connection, and a database that does not commit claims until it is told.
struct World {
    onlooker: Onlooker,
    pool: Pool,
    locks: Locks,
    _cluster: Cluster,
}

impl World {
    async fn new() -> Self {
        let cluster = Cluster::start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        schema::install(&onlooker.0).await.unwrap();
        onlooker
            .0
            .batch_execute(&slow_commit("latchwork.idempotency"))
            .await
            .unwrap();
        let manager = Manager::new(cluster.url().parse().unwrap(), NoTls);
        Self {
            onlooker,
            pool: Pool::builder(manager).max_size(1).build().unwrap(),
            locks: connect(&cluster.url(), quick()).await.locks(),
            _cluster: cluster,
        }
    }

    fn policy(&self, answer_within: Duration) -> Policy {
        Policy::new(self.pool.clone(), header("x-user").optional())
            .unwrap()
            .external(self.locks.clone())
            .answer_within(answer_within)
    }

    async fn commits(&self) {
        self.onlooker.value("SELECT pg_advisory_unlock(7)").await;
    }

    /// Somebody asks again, for as long as the first one's lock is there.
    async fn runs_again(&self, policy: &Policy) {
        eventually("nobody is at it any more", async || match begin(policy).await {
            Ok(begun) => {
                assert!(matches!(begun, Begun::Run(_)), "{begun:?}");
                true
            }
            Err(rejection) => {
                assert_eq!(rejection.kind(), RejectionKind::IdempotencyInFlight, "{rejection:?}");
                false
            }
        })
        .await;
    }
}

async fn begin(policy: &Policy) -> Result<Begun<DeadpoolTx>, Rejection> {
    let request = Request::post("/x").header("idempotency-key", "k").body(()).unwrap();
    let request = policy.request(&request, None).unwrap().unwrap();
    policy.begin(&request, b"body").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_is_stored_too_late_is_taken_back() {
    let world = World::new().await;
    let policy = world.policy(Duration::from_millis(300));
    let refused = begin(&policy).await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), RejectionKind::Unavailable, "{refused:?}");
    world.commits().await;
    world.runs_again(&policy).await;
    is_clean(&world.onlooker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_nobody_waits_for_is_taken_back_once_there_is_a_connection() {
    let world = World::new().await;
    let policy = world.policy(Duration::from_millis(500));
    let asked = {
        let policy = world.policy(Duration::from_secs(60));
        tokio::spawn(async move { begin(&policy).await.map(drop) })
    };
    world.onlooker.waiter().await;
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    // Another request is next for the connection, and has it for longer than an answer may take.
    let pool = world.pool.clone();
    let busy = tokio::spawn(async move { pool.get().await.unwrap() });
    eventually("it queues", async || world.pool.status().waiting > 0).await;
    world.commits().await;
    let connection = busy.await.unwrap();
    let refused = begin(&policy).await.map(drop).unwrap_err();
    assert!(
        matches!(
            refused.kind(),
            RejectionKind::IdempotencyInFlight | RejectionKind::Unavailable
        ),
        "{refused:?}"
    );
    drop(connection);
    world.runs_again(&policy).await;
    is_clean(&world.onlooker).await;
}
