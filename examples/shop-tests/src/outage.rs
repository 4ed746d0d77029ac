//! A database that is away.

use latchwork_harness::{StopMode, wait_until};

use crate::{
    http::Request,
    program::{PATIENCE, Pair},
};

/// One request for each route, and what it is answered when all is well.
fn each_route() -> [(Request, u16); 5] {
    let post = |target: &str| Request::new(&format!("POST {target}")).body("{\"amount\": 5}");
    [
        (post("/orders/42/charge"), 200),
        (post("/payments").header("idempotency-key", "k-1"), 201),
        (Request::new("GET /ai"), 200),
        (Request::new("GET /search?q=4"), 200),
        (Request::new("GET /stats"), 200),
    ]
}

pub fn while_the_database_is_away_all_routes_say_so_and_afterwards_all_is_well(pair: Pair) {
    let [one, other] = pair.addresses();
    for (request, status) in each_route() {
        assert_eq!(request.ask(one).status, status, "{request:?}");
    }
    pair.cluster.stop(StopMode::Fast).unwrap();
    for (request, _) in each_route() {
        let answer = request.ask(other);
        assert_eq!(answer.status, 503, "{request:?}: {answer:?}");
    }
    pair.cluster.restart(StopMode::Fast).unwrap();
    for (request, status) in each_route() {
        assert!(
            wait_until(PATIENCE, || request.ask(other).status == status),
            "{request:?}: {:?}",
            request.ask(other)
        );
    }
    // Nobody was charged or has paid for a 503, and the payment was the one that had been made before.
    let stats = pair.stats();
    assert_eq!((&stats["orders"]["42"], &stats["payments"]), (&10.into(), &1.into()));
}
