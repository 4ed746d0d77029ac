//! Requests that may be sent again: two instances of one service on one database, for each
//! framework.

mod bodies;
mod ends;
mod external;
mod instance;
mod leaving;
mod outages;
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
use crate::onlooker::{Onlooker, eventually, quick};

struct Shop {
    cluster: Cluster,
    onlooker: Onlooker,
    one: Instance,
    other: Instance,
}

impl Shop {
    async fn open<S: Server>() -> Self {
        let cluster = Cluster::start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        onlooker.0.batch_execute(TABLES).await.unwrap();
        schema::install(&onlooker.0).await.unwrap();
        let one = Instance::start::<S>(&cluster.url(), quick()).await;
        let other = Instance::start::<S>(&cluster.url(), quick()).await;
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

    async fn close(self) {
        self.one.close().await;
        self.other.close().await;
        let onlooker = &self.onlooker;
        eventually("no lock and no transaction is left", async || {
            onlooker.held().await == 0 && onlooker.number(IN_TRANSACTION).await == 0
        })
        .await;
    }
}

const TABLES: &str = "CREATE TABLE payments (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY); \
     CREATE TABLE refunds (payment bigint REFERENCES payments DEFERRABLE INITIALLY DEFERRED)";

const IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND state <> 'idle'";

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
