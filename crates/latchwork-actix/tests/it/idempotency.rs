//! Requests that may be sent again, with a database that is made up.

mod bodies;
mod ends;
mod repeats;

use std::net::SocketAddr;

use latchwork_actix::{IdempotencyMiddleware, key::header};
use latchwork_harness::http::{Answer, Client};

use crate::database::Database;

type Middleware = IdempotencyMiddleware<Database>;

fn middleware(database: &Database) -> Middleware {
    Middleware::new(database.clone(), header("x-user")).unwrap()
}

/// Posts a body under a key, as one user.
async fn post(server: SocketAddr, target: &str, key: &str, body: &str) -> Answer {
    let headers = format!("idempotency-key: {key}\r\nx-user: ann\r\n");
    send(server, &format!("POST {target}"), &headers, body).await
}

async fn send(server: SocketAddr, request: &str, headers: &str, body: &str) -> Answer {
    asks(server, request, headers, body).await.answer().await
}

/// Sends a request and leaves its answer unread.
async fn asks(server: SocketAddr, request: &str, headers: &str, body: &str) -> Client {
    let headers = format!("{headers}connection: close\r\ncontent-length: {}\r\n", body.len());
    let mut client = Client::asks(server, request, &headers).await;
    client.send(body.as_bytes()).await;
    client
}

fn is_problem(answer: &Answer, status: u16, kind: &str) {
    assert_eq!(answer.status(), status, "{answer:?}");
    assert!(
        answer.body().contains(&format!("urn:latchwork:problem:{kind}")),
        "{answer:?}"
    );
}

fn is_replayed(answer: &Answer) -> bool {
    answer.header("idempotent-replayed") == Some("true")
}
