//! What is kept, and until when.

use super::{
    Shop, is_problem, post,
    servers::{CAP, Server},
};
use crate::onlooker::eventually;

async fn a_response_that_is_too_large_or_a_stream_arrives_whole_and_is_not_made_twice<S: Server>() {
    let shop = Shop::open::<S>().await;
    let large = post(shop.one.address, "/large", "k", "").await;
    assert_eq!((large.status(), large.body().len()), (200, CAP + 1));
    let stream = post(shop.one.address, "/stream", "k", "").await;
    assert_eq!(stream.status(), 200);
    assert!(stream.0.contains("part 2"), "{stream:?}");
    for path in ["/large", "/stream"] {
        let again = post(shop.other.address, path, "k", "").await;
        is_problem(&again, 409, "idempotency-response-gone");
        assert_eq!(again.header("retry-after"), None);
    }
    assert_eq!(shop.payments().await, 2);
    shop.close().await;
}

async fn a_record_that_has_expired_is_not_replayed_and_is_swept<S: Server>() {
    let shop = Shop::open::<S>().await;
    assert_eq!(post(shop.one.address, "/payments", "old", "").await.status(), 201);
    assert_eq!(post(shop.one.address, "/payments", "older", "").await.status(), 201);
    shop.cluster
        .psql("UPDATE latchwork.idempotency SET expires_at = now() - interval '1 second'")
        .unwrap();
    // The other instance has not swept yet.
    let again = post(shop.other.address, "/payments", "old", "").await;
    assert_eq!((again.status(), again.header("idempotent-replayed")), (201, None));
    eventually("the other one is deleted", async || shop.records().await == 1).await;
    assert_eq!(shop.payments().await, 3);
    shop.close().await;
}

async fn a_sweep_deletes_all_that_has_expired<S: Server>() {
    let shop = Shop::open::<S>().await;
    let expired = "INSERT INTO latchwork.idempotency (id, fingerprint, state, expires_at) \
         SELECT int4send(n), '', 'tombstone', now() - interval '1 second' FROM generate_series(1, 2500) n";
    shop.cluster.psql(expired).unwrap();
    assert_eq!(post(shop.one.address, "/payments", "k", "").await.status(), 201);
    eventually("only the new record is left", async || shop.records().await == 1).await;
    shop.close().await;
}

on_each_framework!(
    crate::http::idempotency::servers:
    a_response_that_is_too_large_or_a_stream_arrives_whole_and_is_not_made_twice,
    a_record_that_has_expired_is_not_replayed_and_is_swept,
    a_sweep_deletes_all_that_has_expired,
);
