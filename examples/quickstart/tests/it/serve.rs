use std::collections::BTreeSet;
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use latchwork_harness::{Signal, wait_until};

use crate::http::{Answer, ask, ask_meanwhile};
use crate::program::{PATIENCE, Serving};

const MINUTES: &str = "ms=600000";

/// Starts a request that keeps an order on the first instance, and returns it with what the second says meanwhile.
fn keep(serving: &Serving, order: &str) -> (JoinHandle<Option<Answer>>, Answer) {
    let [a, b] = &serving.addresses;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let keeper = ask_meanwhile(a, &format!("POST /orders/{order}/charge?{MINUTES}"));
        while !keeper.is_finished() {
            let answer = ask(b, &format!("POST /orders/{order}/charge"));
            if answer.status == 409 {
                return (keeper, answer);
            }
        }
        // One of the questions was in its way.
        assert_eq!(keeper.join().unwrap().unwrap().status, 409);
    }
    panic!("nobody keeps order {order}");
}

fn one_order_at_a_time_and_five_slots(serving: &Serving) {
    let [a, b] = &serving.addresses;
    assert_eq!(ask(a, "POST /orders/1/charge?ms=1").status, 200);
    let (_keeper, busy) = keep(serving, "42");
    assert!(
        busy.head.contains("retry-after: ") && busy.head.contains("application/problem+json"),
        "{busy:?}"
    );
    assert_eq!(ask(a, "POST /orders/42/charge").status, 409);
    assert_eq!(ask(b, "POST /orders/43/charge").status, 200);

    let requests = (0..12).map(|number| ask_meanwhile([a, b][number % 2], "GET /ai?ms=3000"));
    let requests: Vec<_> = requests.collect();
    let answers = requests.into_iter().map(|request| request.join().unwrap().unwrap());
    let (let_in, refused): (Vec<Answer>, Vec<Answer>) = answers.partition(|answer| answer.status == 200);
    let slots: BTreeSet<u64> = let_in.iter().map(slot).collect();
    assert_eq!(slots, BTreeSet::from([0, 1, 2, 3, 4]));
    assert_eq!(let_in.len(), 5);
    assert!(refused.iter().all(|answer| answer.status == 503), "{refused:?}");
    assert!(
        wait_until(PATIENCE, || ask(b, "GET /ai").status == 200),
        "no slot is ever free again"
    );
}

fn slot(answer: &Answer) -> u64 {
    let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    body["slot"].as_u64().unwrap()
}

#[test]
fn both_instances_share_orders_and_slots() {
    one_order_at_a_time_and_five_slots(&Serving::start(&[]));
}

#[test]
fn both_instances_share_orders_and_slots_in_memory_too() {
    one_order_at_a_time_and_five_slots(&Serving::start(&["--memory"]));
}

#[test]
fn the_instances_listen_on_the_port_that_was_asked_for_and_the_next() {
    let port = two_free_ports();
    let serving = Serving::start(&["--memory", "--port", &port.to_string()]);
    assert_eq!(
        serving.addresses,
        [format!("127.0.0.1:{port}"), format!("127.0.0.1:{}", port + 1)]
    );
}

fn two_free_ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}

#[test]
fn one_instance_killed_by_hand_leaves_its_order_to_the_other_within_a_second() {
    let serving = Serving::start(&[]);
    let (holder, _) = keep(&serving, "42");
    let victim = rustix::process::Pid::from_raw(serving.instances()[0].cast_signed()).unwrap();
    let killed = Instant::now();
    rustix::process::kill_process(victim, Signal::KILL).unwrap();
    let free = || ask(&serving.addresses[1], "POST /orders/42/charge").status == 200;
    assert!(wait_until(PATIENCE, free));
    assert!(killed.elapsed() < Duration::from_secs(1), "{:?}", killed.elapsed());
    assert!(holder.join().unwrap().is_none());
}
