use std::time::Duration;

use super::desk::{Desk, Did};
use crate::gate::{HandOverBound, Released};

#[test]
fn a_slot_goes_to_the_next_who_waits_in_order() {
    let mut desk = Desk::full(2);
    for who in 3..=6 {
        desk.waits(who);
    }
    assert_eq!(desk.release(2), [Did::Has(3, 1)]);
    assert_eq!(desk.released, Some(Released::Kept));
    assert_eq!(desk.release(1), [Did::Has(4, 0)]);
    assert_eq!(desk.release(3), [Did::Has(5, 1)]);
    assert_eq!(desk.release(5), [Did::Has(6, 1)]);
    assert_eq!(desk.release(6), [Did::Release(1)]);
    assert_eq!(desk.released, Some(Released::Sent));
    assert_eq!(desk.table.permits(), 1);
}

#[test]
fn one_who_left_is_passed_over() {
    let mut desk = Desk::full(1);
    desk.waits(2);
    desk.waits(3);
    desk.leave(2);
    assert_eq!(desk.release(1), [Did::Has(3, 0)]);
}

#[test]
fn after_the_bound_a_slot_is_left_to_others_for_one_interval() {
    let time = Duration::from_millis(25);
    for (bound, wait) in [
        (HandOverBound::new(1, Duration::MAX), Duration::ZERO),
        (HandOverBound::new(u32::MAX, time), time),
    ] {
        let mut desk = Desk::bounded(1, bound).filled();
        desk.waits(2);
        let early = desk.later;
        desk.waits(3);
        assert_eq!(desk.release(1), [Did::Has(2, 0)]);
        desk.pass(wait);
        assert_eq!(desk.release(2), [Did::Release(0)], "and nobody asks at once");
        assert_eq!(desk.waits(4), [], "not even one who comes now");
        assert_eq!(desk.list(early), (vec![], 0), "this interval had begun before");
        assert_eq!(desk.grant(early, &[]), [Did::AskLater]);
        assert_eq!(desk.list(desk.later), (vec![0], 1));
        assert_eq!(desk.grant(desk.later, &[0]), [Did::Has(3, 0), Did::AskLater]);
    }
}

#[test]
fn after_the_bound_an_unordered_slot_is_left_to_others_too() {
    let mut desk = Desk::unordered(1).filled();
    desk.waits(2);
    let early = desk.later;
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.release(1), [Did::Release(0)]);
    assert_eq!(desk.settle(0), []);
    assert_eq!(desk.waits(3), []);
    assert_eq!(desk.list(early), (vec![], 0));
    assert_eq!(desk.grant(early, &[]), [Did::AskLater]);
    assert_eq!(desk.list(desk.later), (vec![0], 1));
}

#[test]
fn a_long_hold_that_nobody_waits_behind_is_free_at_once() {
    let mut desk = Desk::full(1);
    desk.pass(Duration::from_secs(3600));
    assert_eq!(desk.release(1), [Did::Release(0)]);
    assert_eq!(desk.tries(2), [Did::Ask]);
}

#[test]
fn a_slot_in_doubt_is_given_back_and_not_handed_over() {
    let mut desk = Desk::full(1);
    desk.waits(2);
    desk.session.suspend();
    assert_eq!(desk.release(1), [Did::Release(0), Did::Ask]);
    assert_eq!(desk.list(desk.now), (vec![0], 1));
}

#[test]
fn a_slot_is_given_up_once() {
    let mut desk = Desk::full(1);
    desk.release(1);
    assert_eq!(desk.release(1), []);
    assert_eq!(desk.released, Some(Released::Gone));
    desk.tries(2);
    desk.list(desk.now);
    desk.grant(desk.now, &[0]);
    assert_eq!(desk.release(1), []);
    assert_eq!(desk.released, Some(Released::Gone));
    assert_eq!(desk.table.permits(), 1);
}
