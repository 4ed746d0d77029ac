//! Requests that may be sent again: two instances of one service on one database, for each framework.

mod bodies;
mod claims;
mod ends;
mod external;
mod instance;
mod leaving;
mod outages;
mod processes;
mod random;
mod records;
mod repeats;
mod servers;

use std::net::SocketAddr;

use latchwork_harness::{
    Cluster,
    http::{Answer, Client},
};
use latchwork_postgres::schema;

use self::{instance::Instance, servers::Server};
use crate::{
    http::tx::is_clean,
    onlooker::{Onlooker, eventually, quick},
};

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
        schema::install(&onlooker.0).await.unwrap();
        let one = Instance::start::<S>(&cluster.url(), quick(), size).await;
        let other = Instance::start::<S>(&cluster.url(), quick(), size).await;
        Self {
            cluster,
            onlooker,
            one,
            other,
        }
    }

    async fn payments(&self) -> i64 {
        self.onlooker.number("SELECT count(*) FROM payments").await
    }

    async fn records(&self) -> i64 {
        self.onlooker.number("SELECT count(*) FROM latchwork.idempotency").await
    }

    /// Waits until the server has no lock and no transaction left of either instance.
    async fn is_clean(&self) {
        is_clean(&self.onlooker).await;
    }

    /// Waits until nothing is left in the server, while the pools still have their connections, and ends both
    /// instances.
    async fn close(self) {
        self.is_clean().await;
        self.one.close().await;
        self.other.close().await;
    }
}

const TABLES: &str = "CREATE TABLE payments (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY); \
     CREATE TABLE refunds (payment bigint REFERENCES payments DEFERRABLE INITIALLY DEFERRED)";

/// Posts a body under a key, as one user.
async fn post(server: SocketAddr, path: &str, key: &str, body: &str) -> Answer {
    send(
        server,
        path,
        &format!("idempotency-key: {key}\r\nx-user: ann\r\n"),
        body,
    )
    .await
}

async fn send(server: SocketAddr, path: &str, headers: &str, body: &str) -> Answer {
    asks(server, path, headers, body).await.answer().await
}

async fn asks(server: SocketAddr, path: &str, headers: &str, body: &str) -> Client {
    let headers = format!("{headers}connection: close\r\ncontent-length: {}\r\n", body.len());
    let mut client = Client::asks(server, &format!("POST {path}"), &headers).await;
    client.send(body.as_bytes()).await;
    client
}

fn is_problem(answer: &Answer, status: u16, kind: &str) {
    assert_eq!(answer.status(), status, "{answer:?}");
    assert!(
        answer.0.contains(&format!("urn:latchwork:problem:{kind}")),
        "{answer:?}"
    );
}

/// The answer of the other instance, once nobody is at it.
async fn answered(shop: &Shop, path: &str, key: &str, body: &str) -> Answer {
    let mut last = None;
    eventually("nobody is at it", async || {
        let answer = post(shop.other.address, path, key, body).await;
        let is_answered = answer.status() != 409;
        last = Some(answer);
        is_answered
    })
    .await;
    last.unwrap()
}
