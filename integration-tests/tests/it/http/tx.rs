//! A transaction for each request: two instances of one service on one database, for each framework.

mod ends;
mod instance;
mod leaving;
mod lending;
mod others;
mod outages;
mod poolers;
mod provider;
mod random;
mod servers;

use latchwork_harness::{
    Cluster,
    http::{Answer, Client, Event, ask},
};

use self::{instance::Instance, servers::Server};
use crate::{
    http::library::Library,
    onlooker::{Onlooker, assert_quiet, eventually},
};

/// One database, and two instances that share nothing else.
struct Shop {
    cluster: Cluster,
    onlooker: Onlooker,
    one: Instance,
    other: Instance,
}

impl Shop {
    async fn open<S: Server>() -> Self {
        Self::with_pools_of::<S>(8).await
    }

    async fn with_pools_of<S: Server>(size: usize) -> Self {
        let cluster = Cluster::start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        onlooker.0.batch_execute(TABLES).await.unwrap();
        let one = Instance::start::<S>(&cluster.url(), size);
        let other = Instance::start::<S>(&cluster.url(), size);
        Self {
            cluster,
            onlooker,
            one,
            other,
        }
    }

    /// How many charges are stored for all to see.
    async fn charges(&self) -> i64 {
        self.onlooker.number("SELECT count(*) FROM charges").await
    }

    /// Waits until the server has no lock and no transaction left of either instance.
    async fn is_clean(&self) {
        is_clean(&self.onlooker).await;
    }

    /// Waits until the server has nothing left, while the pools still have their connections, and ends both instances.
    async fn close(self) {
        self.is_clean().await;
        self.one.close().await;
        self.other.close().await;
    }
}

/// Waits until the server has no lock and no transaction left of anybody else.
pub(super) async fn is_clean(onlooker: &Onlooker) {
    eventually("no lock and no transaction is left", async || {
        onlooker.held().await + onlooker.queued().await == 0 && onlooker.number(IN_TRANSACTION).await == 0
    })
    .await;
}

/// Which problem an answer tells of.
fn is_problem(answer: &Answer, status: u16, name: &str) -> bool {
    answer.status() == status && answer.0.contains(&format!("\"urn:latchwork:problem:{name}\""))
}

pub(super) const TABLES: &str = "CREATE TABLE counter (n bigint NOT NULL); INSERT INTO counter VALUES (0); \
     CREATE TABLE orders (id bigint PRIMARY KEY); \
     CREATE TABLE charges (id bigint, order_id bigint REFERENCES orders DEFERRABLE INITIALLY DEFERRED)";

/// Has COMMIT of what was inserted into a table wait for the onlooker, who gives up lock 7 when the test wants.
pub(super) fn slow_commit(table: &str) -> String {
    format!(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         EXECUTE FUNCTION slow(); SELECT pg_advisory_lock(7)"
    )
}

const IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'";

async fn one_request_an_order_at_a_time_and_what_it_did_is_stored_before_it_is_answered<S: Server>() {
    let mut shop = Shop::open::<S>().await;
    let first = Client::asks(shop.one.address, "POST /orders/42/charge", "connection: close\r\n").await;
    shop.one.sees(Event::Entered).await;
    assert_eq!((shop.charges().await, shop.onlooker.held().await), (0, 1));
    for instance in [&shop.one, &shop.other] {
        let refused = ask(instance.address, "POST /orders/42/charge").await;
        assert_eq!(refused.status(), 409);
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(refused.0.contains("urn:latchwork:problem:lock-busy"), "{refused:?}");
    }
    shop.other.lets_go(2);
    assert_eq!(ask(shop.other.address, "POST /orders/7/charge").await.status(), 200);
    assert_eq!(shop.charges().await, 1);
    shop.one.lets_go(1);
    assert_eq!(first.answer().await.status(), 200);
    // At once: the lock goes with the transaction, which ends before the answer.
    assert_eq!((shop.charges().await, shop.onlooker.held().await), (2, 0));
    assert_eq!(ask(shop.other.address, "POST /orders/42/charge").await.status(), 200);
    shop.close().await;
}

async fn forty_requests_that_read_and_write_the_same_row_lose_nothing<S: Server>() {
    let shop = Shop::open::<S>().await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..40 {
        let address = [shop.one.address, shop.other.address][number % 2];
        asking.spawn(async move { ask(address, "POST /add").await.status() });
    }
    for status in asking.join_all().await {
        assert_eq!(status, 200);
    }
    assert_eq!(shop.onlooker.number("SELECT n FROM counter").await, 40);
    shop.is_clean().await;
    assert_quiet(&shop.cluster);
    shop.close().await;
}

/// The inner lock is in the outer layer's transaction, so a pool of one connection does.
async fn two_layers_can_take_their_locks_in_one_transaction<S: Server>() {
    let shop = Shop::with_pools_of::<S>(1).await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..20 {
        let address = [shop.one.address, shop.other.address][number % 2];
        // Different orders, so that only the inner lock keeps them apart.
        asking.spawn(async move { ask(address, &format!("POST /joined/{number}")).await.status() });
    }
    assert!(asking.join_all().await.iter().all(|status| *status == 200));
    assert_eq!(shop.onlooker.number("SELECT n FROM counter").await, 20);
    shop.is_clean().await;
    assert_quiet(&shop.cluster);
    shop.close().await;
}

on_each_framework_and_library!(
    crate::http::tx::servers:
    one_request_an_order_at_a_time_and_what_it_did_is_stored_before_it_is_answered,
    forty_requests_that_read_and_write_the_same_row_lose_nothing,
    two_layers_can_take_their_locks_in_one_transaction,
);
