//! Behind a pooler that gives its connections to others after each transaction.

use latchwork_harness::{Cluster, PgBouncer, PoolMode, http::WAYS_TO_LEAVE};

use super::{Client, Event, Instance, TABLES, ask, is_clean, is_problem, servers::Server};
use crate::onlooker::{Onlooker, eventually};

/// Two instances with more connections to the pooler than that has to the server.
struct Pooled {
    pooler: PgBouncer,
    onlooker: Onlooker,
    one: Instance,
    other: Instance,
    _cluster: Cluster,
}

impl Pooled {
    async fn open<S: Server>() -> Self {
        let cluster = Cluster::start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        onlooker.0.batch_execute(TABLES).await.unwrap();
        let pooler = PgBouncer::builder(&cluster, PoolMode::Transaction).setting("default_pool_size", 3);
        let pooler = pooler.start().unwrap();
        let one = Instance::start_behind::<S>(&pooler.url(), 4).await;
        let other = Instance::start_behind::<S>(&pooler.url(), 4).await;
        Self {
            pooler,
            onlooker,
            one,
            other,
            _cluster: cluster,
        }
    }

    async fn close(self) {
        is_clean(&self.onlooker).await;
        self.one.close().await;
        self.other.close().await;
    }
}

async fn requests_that_read_and_write_the_same_row_lose_nothing_behind_a_pooler<S: Server>() {
    let pooled = Pooled::open::<S>().await;
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..40 {
        let address = [pooled.one.address, pooled.other.address][number % 2];
        asking.spawn(async move { ask(address, "POST /add").await.status() });
    }
    let statuses = asking.join_all().await;
    assert!(
        statuses.iter().all(|status| *status == 200),
        "{statuses:?} {}",
        pooled.pooler.log()
    );
    assert_eq!(pooled.onlooker.number("SELECT n FROM counter").await, 40);
    pooled.close().await;
}

async fn ends_are_told_apart_behind_a_pooler<S: Server>() {
    let pooled = Pooled::open::<S>().await;
    let charges = "SELECT count(*) FROM charges";
    let server = pooled.one.address;
    for (request, status, problem, stored) in [
        ("POST /status/200", 200, None, 1),
        ("POST /status/409", 409, None, 1),
        ("POST /orphan", 500, Some("transaction-failed"), 1),
        ("POST /swallowed", 500, Some("transaction-failed"), 1),
        ("POST /savepoint", 200, None, 2),
    ] {
        let answer = ask(server, request).await;
        match problem {
            Some(problem) => assert!(is_problem(&answer, status, problem), "{request} {answer:?}"),
            None => assert_eq!(answer.status(), status, "{request} {answer:?}"),
        }
        assert_eq!(pooled.onlooker.number(charges).await, stored, "{request}");
    }
    pooled.close().await;
}

async fn a_client_that_leaves_frees_its_lock_behind_a_pooler<S: Server>() {
    let mut pooled = Pooled::open::<S>().await;
    for how in WAYS_TO_LEAVE {
        let client = Client::asks(pooled.one.address, "POST /orders/1/charge", "").await;
        pooled.one.sees(Event::Entered).await;
        assert_eq!(ask(pooled.other.address, "POST /orders/1/charge").await.status(), 409);
        let _rest = client.leave(how).await;
        pooled.one.sees(Event::Dropped).await;
        is_clean(&pooled.onlooker).await;

        // A statement runs on in the server: its session is ended from another connection, which the pooler gives.
        let client = Client::asks(pooled.one.address, "POST /orders/1/asleep", "").await;
        let asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        let onlooker = &pooled.onlooker;
        eventually("it sleeps", async || onlooker.number(asleep).await == 1).await;
        let _rest = client.leave(how).await;
        is_clean(&pooled.onlooker).await;
    }
    assert_eq!(pooled.onlooker.number("SELECT count(*) FROM charges").await, 0);
    pooled.other.lets_go(1);
    assert_eq!(ask(pooled.other.address, "POST /orders/1/charge").await.status(), 200);
    pooled.close().await;
}

on_each_framework_with!(
    deadpool Deadpool, sqlx Sqlx, diesel_async DieselAsync, bb8 Bb8, diesel Diesel;
    {
        crate::http::tx::servers:
        requests_that_read_and_write_the_same_row_lose_nothing_behind_a_pooler,
        ends_are_told_apart_behind_a_pooler,
        a_client_that_leaves_frees_its_lock_behind_a_pooler,
    }
);

// SeaORM prepares whatever has rows, so what reads needs a PgBouncer that keeps prepared statements.
on_each_framework_with!(
    sea_orm SeaOrm;
    {
        crate::http::tx::servers:
        ends_are_told_apart_behind_a_pooler,
        a_client_that_leaves_frees_its_lock_behind_a_pooler,
    }
);
