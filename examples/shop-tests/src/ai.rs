//! Slots of AI calls.

use std::{collections::BTreeSet, thread};

use latchwork_harness::{Signal, StopMode, wait_until};

use crate::{
    http::{Stream, get},
    program::{PATIENCE, Pair},
};

const FOREVER: &str = "/ai?stream=1&ms=600000";

/// Calls that go on until they are dropped, as many as get in: the two instances are asked in turn.
fn fill(pair: &Pair) -> Vec<Stream> {
    let asked = pair.addresses().into_iter().cycle();
    let opened = asked.map(|address| Stream::open(address, FOREVER));
    let mut streams: Vec<_> = opened.take_while(|stream| stream.status == 200).collect();
    let slots: BTreeSet<u64> = streams
        .iter_mut()
        .map(|stream| stream.next().unwrap()["slot"].as_u64().unwrap())
        .collect();
    assert_eq!(slots.len(), streams.len(), "{slots:?}");
    streams
}

fn both_are_full(pair: &Pair) {
    for address in pair.addresses() {
        let refused = get(address, "/ai");
        refused.is_refused(503, "slots-full");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
}

fn fill_again(pair: &Pair) -> Vec<Stream> {
    let mut streams = Vec::new();
    // The slots of those before come free one by one.
    wait_until(PATIENCE, || {
        streams.extend(fill(pair));
        streams.len() >= 5
    });
    streams
}

pub fn five_at_once_over_both_instances_and_never_more(pair: Pair) {
    let streams = fill(&pair);
    assert_eq!(streams.len(), 5);
    both_are_full(&pair);
    assert_eq!(pair.stats()["most_ai_calls_at_once"], 5);
    drop(streams);
    assert_eq!(fill_again(&pair).len(), 5);
    assert_eq!(pair.stats()["most_ai_calls_at_once"], 5);
}

pub fn a_crowd_is_let_in_bit_by_bit(pair: Pair) {
    thread::scope(|scope| {
        for address in pair.addresses().repeat(15) {
            scope.spawn(move || {
                let in_the_end = wait_until(PATIENCE, || get(address, "/ai?ms=20").status == 200);
                assert!(in_the_end);
            });
        }
    });
    let most = pair.stats()["most_ai_calls_at_once"].as_i64().unwrap();
    assert!((1..=5).contains(&most), "{most}");
    let left = "SELECT count(*) FROM shop.ai_calls";
    assert_eq!(pair.cluster.psql(left).unwrap(), "0");
}

pub fn the_answer_comes_whole_or_word_by_word(pair: Pair) {
    let whole = get(&pair.one.address, "/ai?ms=8").json();
    let mut stream = Stream::open(&pair.other.address, "/ai?ms=8&stream=1");
    let lines: Vec<_> = std::iter::from_fn(|| stream.next()).collect();
    let words: Vec<_> = lines.iter().map(|line| line["answer"].as_str().unwrap()).collect();
    assert_eq!(whole["answer"], words.join(" "));
    assert!(words.len() > 1, "{words:?}");
    assert!(lines.iter().all(|line| line["slot"] == lines[0]["slot"]), "{lines:?}");
}

pub fn the_calls_of_a_killed_instance_leave_their_slots_and_are_counted_no_more(mut pair: Pair) {
    let streams = fill(&pair);
    assert_eq!(streams.len(), 5);
    pair.one.process.signal(Signal::KILL);
    pair.one.process.wait().unwrap();
    // Those of the other instance go on.
    let of_other: Vec<_> = streams.into_iter().skip(1).step_by(2).collect();
    let address = pair.other.address.clone();
    let mut more = Vec::new();
    wait_until(PATIENCE, || {
        more.push(Stream::open(&address, FOREVER));
        more.iter().filter(|stream| stream.status == 200).count() + of_other.len() == 5
    });
    get(&address, "/ai").is_refused(503, "slots-full");
    assert_eq!(pair.stats()["most_ai_calls_at_once"], 5);
}

pub fn calls_whose_slot_is_lost_with_the_database_are_cut_off_and_counted_no_more(pair: Pair) {
    let streams = fill(&pair);
    assert_eq!(streams.len(), 5);
    pair.cluster.restart(StopMode::Immediate).unwrap();
    assert!(!streams.into_iter().any(Stream::ends_in_order));
    assert_eq!(fill_again(&pair).len(), 5);
    assert_eq!(pair.stats()["most_ai_calls_at_once"], 5);
}
