//! How long a slot is kept, and what becomes of bodies.

use std::{
    convert::Infallible,
    pin::pin,
    task::{Context, Poll, Waker},
};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    http::{Request, Response},
    routing::get,
};
use futures_util::stream;
use http_body_util::BodyExt;
use latchwork_core::{Locks, Slots};
use latchwork_tower::SlotLayer;
use tower::{Layer, ServiceExt, service_fn};

fn one() -> (Slots, SlotLayer) {
    let slots = Locks::in_memory().slots("all", 1).unwrap();
    (slots.clone(), SlotLayer::global(slots))
}

async fn is_free(slots: &Slots) -> bool {
    slots.try_acquire().await.unwrap().is_some()
}

/// The response of a service with the layer around it, whose body is this.
async fn answered(layer: SlotLayer, body: impl Fn() -> Body + Clone + Send + 'static) -> Response<Body> {
    let service = layer.layer(service_fn(move |_: Request<Body>| {
        let body = body();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    }));
    let response = service.oneshot(Request::new(Body::empty())).await.unwrap();
    response.map(Body::new)
}

fn two_chunks() -> Body {
    Body::from_stream(stream::iter(["a", "b"].map(Ok::<_, Infallible>)))
}

#[tokio::test]
async fn a_slot_is_kept_until_the_body_has_ended() {
    let (slots, layer) = one();
    let mut body = answered(layer, two_chunks).await.into_body();
    for chunk in ["a", "b"] {
        assert!(!is_free(&slots).await);
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), chunk);
    }
    assert!(body.frame().await.is_none());
    // The body still exists.
    assert!(is_free(&slots).await);
    drop(body);
}

#[tokio::test]
async fn a_body_of_known_length_frees_the_slot_with_its_last_byte() {
    let (slots, layer) = one();
    let mut body = answered(layer, || Body::from("all")).await.into_body();
    assert!(!is_free(&slots).await);
    assert_eq!(body.size_hint().exact(), Some(3));
    body.frame().await.unwrap().unwrap();
    assert!(body.is_end_stream() && is_free(&slots).await);
}

#[tokio::test]
async fn an_empty_body_frees_the_slot_at_the_response() {
    let (slots, layer) = one();
    let response = answered(layer, Body::empty).await;
    assert!(is_free(&slots).await);
    drop(response);
}

#[tokio::test]
async fn a_body_that_is_dropped_midway_frees_the_slot() {
    let (slots, layer) = one();
    let mut body = answered(layer, two_chunks).await.into_body();
    body.frame().await.unwrap().unwrap();
    assert!(!is_free(&slots).await);
    drop(body);
    assert!(is_free(&slots).await);
}

#[tokio::test]
async fn a_body_that_fails_frees_the_slot() {
    let (slots, layer) = one();
    let failing = || Body::from_stream(stream::iter([Ok("a"), Err("as the test wants")]));
    let mut body = answered(layer, failing).await.into_body();
    body.frame().await.unwrap().unwrap();
    assert!(!is_free(&slots).await);
    assert!(body.frame().await.unwrap().is_err());
    assert!(is_free(&slots).await);
    drop(body);
}

#[tokio::test]
async fn until_response_frees_the_slot_before_the_body_is_sent() {
    let (slots, layer) = one();
    let response = answered(layer.until_response(), two_chunks).await;
    assert!(is_free(&slots).await);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ab");
}

#[tokio::test]
async fn trailers_pass_and_end_the_body() {
    let (slots, layer) = one();
    let with_trailers = || {
        let trailers = [("x-sum".parse().unwrap(), "1".parse().unwrap())].into_iter().collect();
        Body::new(Body::from("a").with_trailers(async { Some(Ok(trailers)) }))
    };
    let collected = answered(layer, with_trailers)
        .await
        .into_body()
        .collect()
        .await
        .unwrap();
    assert_eq!(collected.trailers().unwrap()["x-sum"], "1");
    assert!(is_free(&slots).await);
}

#[tokio::test]
async fn a_refusal_is_a_body_of_known_length() {
    let (slots, layer) = one();
    let _held = slots.try_acquire().await.unwrap();
    let response = answered(layer, Body::empty).await;
    assert_eq!(response.status(), 503);
    let size = response.body().size_hint().exact().unwrap();
    assert!(!response.body().is_end_stream());
    let body: Bytes = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len() as u64, size);
}

#[tokio::test]
async fn any_body_will_do_for_requests_and_responses() {
    let (slots, layer) = one();
    let service = layer.layer(service_fn(|_: Request<String>| async {
        Ok::<_, Infallible>(Response::new(
            http_body_util::Full::new(Bytes::from_static(b"ab")).boxed_unsync(),
        ))
    }));
    let response = service
        .oneshot(Request::new("a body of any kind".to_owned()))
        .await
        .unwrap();
    let mut body = pin!(response.into_body());
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(&mut context) else {
        panic!("a full body is there")
    };
    assert_eq!(frame.into_data().unwrap(), "ab");
    assert!(is_free(&slots).await);
}

#[tokio::test]
async fn a_head_request_frees_the_slot() {
    let (slots, layer) = one();
    let app = Router::new().route("/", get(|| async { two_chunks() }).layer(layer));
    let address = crate::support::serve(app).await;
    let answer = crate::support::ask(address, "HEAD /").await;
    assert_eq!((answer.status(), answer.body()), (200, ""));
    crate::support::in_time(slots.acquire().without_limit())
        .await
        .map(drop)
        .unwrap();
}
