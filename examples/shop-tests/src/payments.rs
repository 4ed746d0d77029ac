//! Payments that are sent again.

use std::thread;

use crate::{
    http::{Answer, Request},
    program::Pair,
};

fn pay(key: &str, query: &str) -> Request {
    Request::new(&format!("POST /payments?{query}"))
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body("{\"amount\": 5}")
}

fn rows(pair: &Pair) -> i64 {
    pair.stats()["payments"].as_i64().unwrap()
}

fn same(replayed: &Answer, first: &Answer) {
    assert_eq!(replayed.status, first.status);
    assert_eq!(replayed.header("location"), first.header("location"));
    assert_eq!(replayed.header("content-type"), first.header("content-type"));
    assert_eq!(replayed.body, first.body);
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));
}

pub fn a_payment_that_is_sent_again_is_answered_the_same_by_either_instance(pair: Pair) {
    let first = pay("k-1", "ms=1").ask(&pair.one.address);
    assert_eq!(first.status, 201, "{first:?}");
    let payment = first.json()["payment"].as_i64().unwrap();
    assert_eq!(first.header("location"), Some(&*format!("/payments/{payment}")));
    assert_eq!(first.header("idempotent-replayed"), None);
    for address in pair.addresses() {
        same(&pay("k-1", "ms=1").ask(address), &first);
    }
    assert_eq!(rows(&pair), 1);
    let another = pay("k-2", "ms=1").ask(&pair.other.address);
    assert_ne!(another.header("location"), first.header("location"));
    assert_eq!(rows(&pair), 2);
}

pub fn one_payment_that_is_sent_by_twenty_at_once_is_made_once(pair: Pair) {
    let request = pay("k-1", "ms=30");
    let answers: Vec<Answer> = thread::scope(|scope| {
        let asked: Vec<_> = pair
            .addresses()
            .repeat(10)
            .into_iter()
            .map(|address| scope.spawn(|| request.ask(address)))
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 201);
    let made_now = made
        .iter()
        .filter(|answer| answer.header("idempotent-replayed").is_none());
    assert_eq!(made_now.count(), 1);
    assert!(made.iter().all(|answer| answer.body == made[0].body), "{made:?}");
    for answer in refused {
        answer.is_refused(409, "idempotency-in-flight");
    }
    assert_eq!(rows(&pair), 1);
}

pub fn a_payment_that_fails_leaves_no_row_and_its_key_can_be_used_again(pair: Pair) {
    for address in pair.addresses() {
        let failed = pay("k-1", "fail=1").ask(address);
        assert_eq!(failed.status, 500);
        assert_eq!(failed.header("idempotent-replayed"), None);
        assert_eq!(rows(&pair), 0);
    }
    assert_eq!(pay("k-1", "").ask(&pair.other.address).status, 201);
    assert_eq!(rows(&pair), 1);
}

pub fn a_key_is_required_and_belongs_to_its_payment_and_customer(pair: Pair) {
    let [one, other] = pair.addresses();
    Request::new("POST /payments")
        .body("{\"amount\": 5}")
        .ask(one)
        .is_refused(400, "bad-idempotency-key");
    let first = pay("k-1", "").header("x-api-key", "ann").ask(one);
    assert_eq!(first.status, 201);
    pay("k-1", "")
        .header("x-api-key", "ann")
        .body("{\"amount\": 6}")
        .ask(other)
        .is_refused(422, "idempotency-mismatch");
    let of_bob = pay("k-1", "").header("x-api-key", "bob").ask(other);
    assert_eq!(of_bob.status, 201);
    assert_ne!(of_bob.header("location"), first.header("location"));
    assert_eq!(rows(&pair), 2);
}
