//! Searches.

use std::{thread, time::Instant};

use crate::{
    http::{Answer, Request, get},
    program::Pair,
};

fn search(key: Option<&str>) -> Request {
    let request = Request::new("GET /search?q=4");
    match key {
        Some(key) => request.header("x-api-key", key),
        None => request,
    }
}

/// Asks a hundred times at once, half of them each instance. Returns how many were let in, and one of the others.
fn crowd(pair: &Pair, key: Option<&str>) -> (usize, Answer) {
    let answers: Vec<Answer> = thread::scope(|scope| {
        let asked: Vec<_> = pair
            .addresses()
            .repeat(50)
            .into_iter()
            .map(|address| scope.spawn(move || search(key).ask(address)))
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    let (let_in, mut refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    (let_in.len(), refused.pop().expect("somebody is refused"))
}

pub fn twenty_in_a_burst_and_ten_a_second_over_both_instances(pair: Pair) {
    for key in [Some("ann"), None] {
        let begun = Instant::now();
        let (let_in, refused) = crowd(&pair, key);
        let most = 20 + (begun.elapsed().as_secs_f64() * 10.0).ceil() as usize;
        assert!((20..=most).contains(&let_in), "{let_in}, at most {most}");
        refused.is_refused(429, "rate-limited");
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
    }
    // What Ann and those without a key have used up is no affair of others.
    assert_eq!(search(Some("bob")).ask(&pair.one.address).status, 200);
    assert_eq!(search(Some("127.0.0.1")).ask(&pair.other.address).status, 200);
}

pub fn it_finds_orders_by_a_part_of_their_id(pair: Pair) {
    for order in ["41", "42", "53"] {
        let charge = Request::new(&format!("POST /orders/{order}/charge")).body("{\"amount\": 1}");
        assert_eq!(charge.ask(&pair.one.address).status, 200);
    }
    let found = get(&pair.other.address, "/search?q=4");
    assert_eq!(found.json(), serde_json::json!({ "orders": ["41", "42"] }));
    assert_eq!(get(&pair.other.address, "/search").status, 400);
}
