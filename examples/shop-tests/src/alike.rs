//! No client can tell which instance it has come to.

use crate::{
    http::{Answer, Request},
    program::Pair,
};

fn post(target: &str) -> Request {
    Request::new(&format!("POST {target}")).body("{\"amount\": 5}")
}

fn ask_both(pair: &Pair, request: &Request) -> [Answer; 2] {
    pair.addresses().map(|address| request.ask(address))
}

/// A body without what is told by chance: which slot was free.
fn without_slot(body: &str) -> String {
    let parts = body.split("\"slot\":");
    parts.map(|part| part.trim_start_matches(char::is_numeric)).collect()
}

pub fn both_instances_answer_with_the_same_status_headers_and_body(pair: Pair) {
    for (request, status) in [
        (post("/orders/42/charge").body("five"), 400),
        (post("/payments").header("idempotency-key", "k-1"), 201),
        (post("/payments?fail=1").header("idempotency-key", "k-2"), 500),
        (post("/payments").header("idempotency-key", "k-3").body("five"), 400),
        (post("/payments"), 400),
        (Request::new("GET /ai?ms=8"), 200),
        (Request::new("GET /ai?ms=8&stream=1"), 200),
        (Request::new("GET /search?q=4"), 200),
        (Request::new("GET /stats"), 200),
        (Request::new("HEAD /stats"), 200),
        (Request::new("HEAD /ai"), 200),
    ] {
        let [one, other] = ask_both(&pair, &request);
        assert_eq!((one.status, other.status), (status, status), "{one:?}, {other:?}");
        for name in ["content-type", "location", "retry-after"] {
            assert_eq!(one.header(name), other.header(name), "{name}: {one:?}, {other:?}");
        }
        assert_eq!(without_slot(&one.body), without_slot(&other.body));
    }
}

pub fn both_instances_refuse_what_they_do_not_understand_with_the_same_status(pair: Pair) {
    for (request, status) in [
        (Request::new("GET /nothing"), 404),
        (Request::new("GET /orders/42/charge"), 405),
        (Request::new("DELETE /payments"), 405),
        (post("/ai"), 405),
        (post("/search?q=4"), 405),
        (post("/stats"), 405),
        (post("/orders/42/charge?ms=soon"), 400),
        (post("/payments?ms=soon").header("idempotency-key", "k-1"), 400),
        (Request::new("GET /ai?ms=soon"), 400),
        (Request::new("GET /search"), 400),
    ] {
        let statuses = ask_both(&pair, &request).map(|answer| answer.status);
        assert_eq!(statuses, [status, status], "{request:?}");
    }
}
