//! How long a slot is kept, and what becomes of bodies.

use std::{future::poll_fn, io};

use actix_web::{
    App, HttpResponse,
    body::{BodySize, BoxBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    middleware::{Next, from_fn},
    test::{TestRequest, call_service, init_service, read_body, try_call_service},
    web,
};
use bytes::Bytes;
use futures_util::stream;
use latchwork_actix::SlotMiddleware;
use latchwork_core::{Locks, Slots};
use latchwork_harness::http::ask;

use crate::support::{are_free, serve};

fn one() -> (Slots, SlotMiddleware) {
    let slots = Locks::in_memory().slots("all", 1).unwrap();
    (slots.clone(), SlotMiddleware::global(slots))
}

async fn is_free(slots: &Slots) -> bool {
    slots.try_acquire().await.unwrap().is_some()
}

/// The body of the response to a request with the middleware around its handler.
async fn answered(slot: SlotMiddleware, response: fn() -> HttpResponse) -> BoxBody {
    let handler = move || async move { response() };
    let app = init_service(App::new().wrap(slot).route("/", web::get().to(handler))).await;
    let response = call_service(&app, TestRequest::get().uri("/").to_request()).await;
    assert_eq!(response.status(), 200);
    response.into_body().boxed()
}

async fn next(body: &mut BoxBody) -> Option<Result<Bytes, String>> {
    let chunk = poll_fn(|context| body.as_pin_mut().poll_next(context)).await;
    chunk.map(|chunk| chunk.map_err(|error| error.to_string()))
}

fn chunks<const N: usize>(chunks: [io::Result<&'static str>; N]) -> HttpResponse {
    HttpResponse::Ok().streaming(stream::iter(chunks.map(|chunk| chunk.map(Bytes::from))))
}

fn two_chunks() -> HttpResponse {
    chunks([Ok("a"), Ok("b")])
}

#[actix_web::test]
async fn a_slot_is_kept_until_the_body_has_ended() {
    let (slots, slot) = one();
    let mut body = answered(slot, two_chunks).await;
    for chunk in ["a", "b"] {
        assert!(!is_free(&slots).await);
        assert_eq!(next(&mut body).await.unwrap().unwrap(), chunk);
    }
    assert!(!is_free(&slots).await);
    assert!(next(&mut body).await.is_none());
    // The body still exists.
    assert!(is_free(&slots).await);
    drop(body);
}

#[actix_web::test]
async fn a_body_of_known_length_frees_the_slot_with_its_last_byte() {
    let (slots, slot) = one();
    let mut body = answered(slot, || HttpResponse::Ok().body("all")).await;
    assert!(!is_free(&slots).await);
    assert_eq!(body.size(), BodySize::Sized(3));
    assert_eq!(next(&mut body).await.unwrap().unwrap(), "all");
    assert!(is_free(&slots).await);
    drop(body);
}

#[actix_web::test]
async fn an_empty_body_frees_the_slot_at_the_response() {
    let empty: [fn() -> HttpResponse; 2] = [|| HttpResponse::Ok().finish(), || HttpResponse::Ok().body("")];
    for response in empty {
        let (slots, slot) = one();
        let body = answered(slot, response).await;
        assert!(is_free(&slots).await);
        drop(body);
    }
}

#[actix_web::test]
async fn a_body_that_is_dropped_midway_frees_the_slot() {
    let (slots, slot) = one();
    let mut body = answered(slot, two_chunks).await;
    next(&mut body).await.unwrap().unwrap();
    assert!(!is_free(&slots).await);
    drop(body);
    assert!(is_free(&slots).await);
}

#[actix_web::test]
async fn a_body_that_fails_frees_the_slot() {
    let (slots, slot) = one();
    let failing = || chunks([Ok("a"), Err(io::Error::other("as the test wants"))]);
    let mut body = answered(slot, failing).await;
    next(&mut body).await.unwrap().unwrap();
    assert!(!is_free(&slots).await);
    assert!(next(&mut body).await.unwrap().is_err());
    assert!(is_free(&slots).await);
    drop(body);
}

#[actix_web::test]
async fn until_response_frees_the_slot_before_the_body_is_sent() {
    let (slots, slot) = one();
    let mut body = answered(slot.until_response(), two_chunks).await;
    assert!(is_free(&slots).await);
    for chunk in ["a", "b"] {
        assert_eq!(next(&mut body).await.unwrap().unwrap(), chunk);
    }
}

#[actix_web::test]
async fn a_handler_that_fails_frees_the_slot() {
    let (slots, slot) = one();
    let fails = || async { Err::<HttpResponse, _>(actix_web::error::ErrorImATeapot("as the test wants")) };
    // From a handler an error is a response, from a middleware it stays one.
    let refuses = from_fn(|_: ServiceRequest, _: Next<BoxBody>| async {
        Err::<ServiceResponse, _>(actix_web::error::ErrorImATeapot("as the test wants"))
    });
    let app = App::new()
        .service(web::resource("/handler").wrap(slot.clone()).route(web::get().to(fails)))
        .service(
            web::resource("/middleware")
                .wrap(refuses)
                .wrap(slot)
                .route(web::get().to(fails)),
        );
    let app = init_service(app).await;
    let request = |path| TestRequest::get().uri(path).to_request();
    let response = call_service(&app, request("/handler")).await;
    assert_eq!(read_body(response).await, "as the test wants");
    assert!(is_free(&slots).await);
    assert!(try_call_service(&app, request("/middleware")).await.is_err());
    assert!(is_free(&slots).await);
}

#[actix_web::test]
async fn a_refusal_is_a_body_of_known_length() {
    let (slots, slot) = one();
    let _held = slots.try_acquire().await.unwrap();
    let app = init_service(App::new().wrap(slot).route("/", web::get().to(|| async { "never" }))).await;
    let response = call_service(&app, TestRequest::get().uri("/").to_request()).await;
    assert_eq!(response.status(), 503);
    let BodySize::Sized(size) = response.response().body().size() else {
        panic!("the length is known")
    };
    assert_eq!(read_body(response).await.len() as u64, size);
}

#[actix_web::test]
async fn over_a_socket_the_slot_is_free_when_the_answer_has_come() {
    let (slots, slot) = one();
    let address = serve(move |routes| {
        let all = || async { HttpResponse::Ok().body("all") };
        routes
            .service(
                web::resource("/all")
                    .wrap(slot.clone())
                    .route(web::get().to(all))
                    .route(web::head().to(all)),
            )
            .service(
                web::resource("/chunks")
                    .wrap(slot.clone())
                    .route(web::get().to(|| async { two_chunks() }))
                    .route(web::head().to(|| async { two_chunks() })),
            );
    });
    for (request, body) in [
        ("GET /all", "all"),
        ("HEAD /all", ""),
        ("GET /chunks", "1\r\na\r\n1\r\nb\r\n0\r\n\r\n"),
        ("HEAD /chunks", ""),
    ] {
        let answer = ask(address, request).await;
        assert_eq!((answer.status(), answer.body()), (200, body), "{request}");
        are_free(&slots, 1).await;
    }
}
