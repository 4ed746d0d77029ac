//! Charges of orders.

use std::{
    thread::{self, JoinHandle},
    time::Instant,
};

use latchwork_harness::wait_until;

use crate::{
    http::{Answer, Request, get},
    program::{PATIENCE, Pair},
};

fn charge(order: &str, ms: u32) -> Request {
    Request::new(&format!("POST /orders/{order}/charge?ms={ms}")).body("{\"amount\": 5}")
}

/// Starts a charge that takes ten minutes on the first instance, and returns it with what the second says meanwhile.
fn keep(pair: &Pair, order: &str) -> (JoinHandle<Option<Answer>>, Answer) {
    let [one, other] = pair.addresses();
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let keeper = charge(order, 600_000).ask_meanwhile(one);
        while !keeper.is_finished() {
            let answer = charge(order, 0).ask(other);
            if answer.status == 409 {
                return (keeper, answer);
            }
        }
        // One of the questions was in its way.
        assert_eq!(keeper.join().unwrap().unwrap().status, 409);
    }
    panic!("nobody keeps order {order}");
}

pub fn forty_charges_at_once_on_two_instances_add_up(pair: Pair) {
    let until_done = |address: &str| loop {
        let answer = charge("42", 2).ask(address);
        match answer.status {
            200 => return answer.json()["total"].as_i64().unwrap(),
            _ => answer.is_refused(409, "lock-busy"),
        }
    };
    let mut totals: Vec<i64> = thread::scope(|scope| {
        let charges = pair.addresses().repeat(20).into_iter();
        let charges: Vec<_> = charges
            .map(|address| scope.spawn(move || until_done(address)))
            .collect();
        charges.into_iter().map(|charge| charge.join().unwrap()).collect()
    });
    totals.sort_unstable();
    // Each saw what the others had made of it before.
    assert_eq!(totals, (1..=40).map(|number| number * 5).collect::<Vec<i64>>());
    assert_eq!(pair.stats()["orders"], serde_json::json!({ "42": 200 }));
}

pub fn an_order_that_is_being_charged_is_refused_to_others_and_other_orders_are_not(pair: Pair) {
    let (_keeper, refused) = keep(&pair, "42");
    refused.is_refused(409, "lock-busy");
    assert_eq!(refused.header("retry-after"), Some("1"));
    // However it is written.
    for order in ["42", "4%32"] {
        charge(order, 0).ask(&pair.one.address).is_refused(409, "lock-busy");
    }
    assert_eq!(charge("43", 0).ask(&pair.one.address).json()["total"], 5);
}

pub fn a_charge_whose_client_leaves_is_undone(pair: Pair) {
    let [one, other] = pair.addresses();
    assert_eq!(charge("42", 0).ask(one).json()["total"], 5);
    let leaver = charge("42", 600_000).send(one).unwrap();
    assert!(wait_until(PATIENCE, || {
        let locks = "SELECT count(*) FROM pg_locks AS l JOIN pg_stat_activity AS s USING (pid) \
             WHERE l.locktype = 'advisory' AND s.state = 'idle in transaction'";
        pair.cluster.psql(locks).unwrap() == "1"
    }));
    charge("42", 0).ask(other).is_refused(409, "lock-busy");
    drop(leaver);
    let mut answer = charge("42", 0).ask(other);
    wait_until(PATIENCE, || {
        if answer.status == 409 {
            answer = charge("42", 0).ask(other);
        }
        answer.status != 409
    });
    assert_eq!(answer.json()["total"], 10);
}

pub fn what_is_no_charge_changes_nothing(pair: Pair) {
    for body in ["", "five", "{\"amount\": -5}", "{\"amount\": 4294967296}", "{}"] {
        let answer = charge("42", 0).body(body).ask(&pair.one.address);
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    assert_eq!(pair.stats()["orders"], serde_json::json!({}));
}

pub fn more_charges_than_there_are_connections_do_not_keep_others_from_asking(pair: Pair) {
    let address = &pair.one.address;
    let orders = 0..20;
    let _charges: Vec<_> = orders
        .map(|order| charge(&order.to_string(), 600_000).send(address))
        .collect();
    let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'";
    assert!(wait_until(PATIENCE, || pair.cluster.psql(running).unwrap() == "20"));
    let one_more = charge("20", 0).ask_meanwhile(address);
    assert_eq!(get(address, "/stats").status, 200);
    // For each charge has a connection, and the one more waits for one in vain.
    one_more.join().unwrap().unwrap().is_refused(503, "unavailable");
}
