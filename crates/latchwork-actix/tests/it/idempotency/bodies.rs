//! The bodies of requests and responses.

use std::{
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use actix_web::{
    HttpResponse,
    body::{BodySize, MessageBody},
    http::StatusCode,
    web,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use latchwork_actix::TxProvider;
use latchwork_core::Locks;
use latchwork_harness::http::{Client, Leave};

use super::{Middleware, is_problem, is_replayed, middleware, post};
use crate::{
    database::{Count, Database, WORK},
    support::{LockedTx, serve},
};

const CAP: usize = 1000;

const HEADERS: &str = "idempotency-key: k\r\nx-user: ann\r\nconnection: close\r\n";

/// What a server says of a body, in hexadecimal, by the extractor that the path names.
fn echoes(database: &Database) -> SocketAddr {
    let middleware = middleware(database).max_request_body(CAP);
    serve(move |routes| {
        let whole = web::resource("/whole").wrap(middleware.clone());
        let streamed = web::resource("/streamed").wrap(middleware.clone());
        let text = web::resource("/text").wrap(middleware.clone());
        routes
            // The extractors' own limits are not the middleware's.
            .app_data(web::PayloadConfig::new(10 * CAP))
            .service(whole.route(web::post().to(|body: Bytes| async move { hex(&body) })))
            .service(text.route(web::post().to(|body: String| async move { hex(body.as_bytes()) })))
            .service(streamed.route(web::post().to(|mut body: web::Payload| async move {
                let mut read = Vec::new();
                while let Some(part) = body.next().await {
                    read.extend_from_slice(&part.unwrap());
                }
                hex(&read)
            })));
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn chunked(parts: &[&[u8]]) -> Vec<u8> {
    let mut body = Vec::new();
    for part in parts {
        body.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        body.extend_from_slice(part);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"0\r\n\r\n");
    body
}

#[actix_web::test]
async fn a_handler_is_given_the_body_byte_for_byte_however_it_was_sent_and_however_it_reads() {
    let odd: Vec<u8> = (0..=255).chain([0, 13, 10, 255]).collect();
    for (path, sent) in [
        ("/whole", &*odd),
        ("/streamed", &*odd),
        ("/text", "ä text\r\n".as_bytes()),
        ("/whole", b""),
        ("/streamed", b""),
    ] {
        let database = Database::default();
        let server = echoes(&database);
        let length = format!("{HEADERS}content-length: {}\r\n", sent.len());
        let mut client = Client::asks(server, &format!("POST {path}"), &length).await;
        client.send(sent).await;
        let first = client.answer().await;
        assert_eq!((first.status(), first.body()), (200, &*hex(sent)), "{path}");
        assert!(!is_replayed(&first));
        // In pieces it is the same request.
        let mut client = Client::asks(
            server,
            &format!("POST {path}"),
            &format!("{HEADERS}transfer-encoding: chunked\r\n"),
        )
        .await;
        let parts: Vec<_> = sent.chunks(7).collect();
        client.send(&chunked(&parts)).await;
        let again = client.answer().await;
        assert!(is_replayed(&again), "{again:?}");
        assert_eq!(again.body(), hex(sent));
    }
}

#[actix_web::test]
async fn a_body_over_the_cap_is_refused_however_it_is_sent_and_one_at_the_cap_arrives() {
    let database = Database::default();
    let server = echoes(&database);
    let long = "z".repeat(CAP + 1);
    is_problem(&post(server, "/whole", "k", &long).await, 413, "body-too-large");
    // Refused before it has ended: its length is not known.
    let headers = format!("{HEADERS}transfer-encoding: chunked\r\n");
    let mut client = Client::asks(server, "POST /whole", &headers).await;
    client.send(&chunked(&[long.as_bytes()])).await;
    is_problem(&client.answer().await, 413, "body-too-large");
    assert_eq!(database.asked(), 0);
    let at_cap = "z".repeat(CAP);
    let taken = post(server, "/whole", "k", &at_cap).await;
    assert_eq!((taken.status(), taken.body()), (200, &*hex(at_cap.as_bytes())));
}

#[actix_web::test]
async fn a_body_that_ends_early_is_no_request() {
    let database = Database::default();
    let server = echoes(&database);
    let headers = format!("{HEADERS}content-length: 10\r\n");
    let mut client = Client::asks(server, "POST /whole", &headers).await;
    client.send(b"half").await;
    let rest = client.leave(Leave::HalfClose).await.unwrap();
    // Whether it is told so is actix-web's affair.
    let _ = rest.answer().await;
    assert_eq!(database.asked(), 0);
    assert!(!is_replayed(&post(server, "/whole", "k", "half").await));
}

/// A body that says one thing of its size.
struct Body {
    size: BodySize,
    parts: Vec<Result<Bytes, std::io::Error>>,
}

impl MessageBody for Body {
    type Error = std::io::Error;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, std::io::Error>>> {
        Poll::Ready((!self.parts.is_empty()).then(|| self.parts.remove(0)))
    }
}

/// Works, and answers with bodies of all kinds.
fn answers(database: &Database) -> SocketAddr {
    answering(middleware(database))
}

fn answering(middleware: Middleware) -> SocketAddr {
    let middleware = middleware.max_response_body(CAP);
    serve(move |routes| {
        let answer = async |path: web::Path<String>, tx: Option<LockedTx>| {
            if let Some(mut tx) = tx {
                Database::query(&mut tx, WORK, &[]).await.unwrap();
            }
            let mut ok = HttpResponse::Ok();
            match &**path {
                "at-cap" => ok.body("z".repeat(CAP)),
                "large" => ok.body("z".repeat(CAP + 1)),
                "stream" => ok.streaming(stream::iter([Ok::<_, actix_web::Error>(Bytes::from_static(b"part"))])),
                "none" => HttpResponse::new(StatusCode::NO_CONTENT),
                "broken" => ok.body(Body {
                    size: BodySize::Sized(8),
                    parts: vec![
                        Ok(Bytes::from_static(b"half")),
                        Err(std::io::Error::other("as the test wants")),
                    ],
                }),
                other => panic!("{other}"),
            }
        };
        let resource = web::resource("/{body}").wrap(middleware.clone());
        routes.service(resource.route(web::post().to(answer)));
    })
}

#[actix_web::test]
async fn a_response_that_is_small_and_whole_is_kept() {
    let database = Database::default();
    let server = answers(&database);
    for (path, status) in [("/at-cap", 200), ("/none", 204)] {
        let first = post(server, path, &path[1..], "").await;
        let again = post(server, path, &path[1..], "").await;
        assert_eq!((first.status(), again.status()), (status, status));
        assert_eq!(first.body(), again.body());
        assert!(!is_replayed(&first) && is_replayed(&again));
    }
    assert_eq!(database.work(), 2);
}

#[actix_web::test]
async fn a_response_that_is_too_large_or_a_stream_arrives_whole_and_is_not_made_twice() {
    let database = Database::default();
    let server = answers(&database);
    let large = post(server, "/large", "large", "").await;
    assert_eq!((large.status(), large.body().len()), (200, CAP + 1));
    let stream = post(server, "/stream", "stream", "").await;
    assert_eq!((stream.status(), stream.body()), (200, "4\r\npart\r\n0\r\n\r\n"));
    for path in ["/large", "/stream"] {
        is_problem(
            &post(server, path, &path[1..], "").await,
            409,
            "idempotency-response-gone",
        );
    }
    assert_eq!(database.work(), 2);
}

#[actix_web::test]
async fn a_response_that_breaks_is_not_sent_and_its_work_is_undone() {
    let database = Database::default();
    let server = answers(&database);
    for _ in 0..2 {
        is_problem(&post(server, "/broken", "k", "").await, 500, "transaction-failed");
    }
    assert_eq!(database.work(), 0);
    let ended = Count {
        rolled_back: 2,
        ..Count::NONE
    };
    assert_eq!(database.settled().await, ended);
}

#[actix_web::test]
async fn work_outside_the_database_whose_response_breaks_is_not_said_to_be_undone() {
    let server = answering(middleware(&Database::default()).external(Locks::in_memory()));
    is_problem(&post(server, "/broken", "k", "").await, 500, "transaction-unknown");
    is_problem(&post(server, "/broken", "k", "").await, 409, "idempotency-unknown");
}
