use std::time::Duration;

use super::desk::{Desk, Did};
use crate::gate::HandOverBound;

#[test]
fn a_try_asks_once_for_one_of_the_free_slots() {
    let mut desk = Desk::new(3);
    assert_eq!(desk.tries(1), [Did::Ask]);
    assert_eq!(desk.list(desk.now), (vec![0, 1, 2], 1));
    assert_eq!(desk.grant(desk.now, &[1]), [Did::Has(1, 1)]);
    assert_eq!(desk.table.permits(), 1);
}

#[test]
fn a_try_is_denied_when_no_slot_was_free() {
    let mut desk = Desk::new(3);
    desk.tries(1);
    desk.list(desk.now);
    assert_eq!(desk.grant(desk.now, &[]), [Did::Denied(1)]);
}

#[test]
fn a_try_is_denied_at_once_when_all_slots_are_held_here() {
    let mut desk = Desk::full(2);
    assert_eq!(desk.tries(9), [Did::Denied(9)]);
}

#[test]
fn a_try_that_comes_after_the_question_has_one_of_its_own() {
    let mut desk = Desk::new(2);
    desk.tries(1);
    let first = desk.now;
    desk.list(first);
    assert_eq!(desk.tries(2), [], "all slots are in question");
    assert_eq!(desk.grant(first, &[]), [Did::Denied(1), Did::Ask]);
    assert_eq!(desk.list(desk.now), (vec![0, 1], 1));
    assert_eq!(desk.grant(desk.now, &[]), [Did::Denied(2)]);
}

#[test]
fn a_try_is_not_denied_for_slots_that_others_of_this_process_have_in_question() {
    let mut desk = Desk::new(2);
    assert_eq!(desk.waits(1), [Did::Ask, Did::AskLater]);
    let (first, later) = (desk.now, desk.later);
    assert_eq!(desk.list(first), (vec![0, 1], 1));
    desk.tries(2);
    // The poll interval is over before the first answer is there.
    assert_eq!(desk.list(later), (vec![], 0));
    assert_eq!(desk.grant(later, &[]), [Did::AskLater]);
    assert_eq!(desk.grant(first, &[0]), [Did::Has(1, 0), Did::Ask]);
    assert_eq!(desk.list(desk.now), (vec![1], 1));
    assert_eq!(desk.grant(desk.now, &[1]), [Did::Has(2, 1)]);
}

#[test]
fn a_try_whose_slot_went_to_one_before_it_waits_for_the_slot_that_he_no_longer_needs() {
    let mut desk = Desk::unordered(2).filled();
    desk.release(1);
    desk.release(2);
    desk.settle(0);
    desk.waits(4);
    let first = desk.now;
    assert_eq!(desk.list(first), (vec![0], 1));
    assert_eq!(desk.settle(1), []);
    assert_eq!(desk.tries(5), [Did::Ask]);
    let second = desk.now;
    assert_eq!(desk.list(second), (vec![1], 1));
    assert_eq!(desk.grant(second, &[1]), [Did::Has(4, 1)]);
    assert_eq!(desk.grant(first, &[0]), [Did::Has(5, 0)]);
}

#[test]
fn a_try_had_its_chance_when_each_slot_was_asked_for_once_since_it_came() {
    let mut desk = Desk::unordered(2).filled();
    desk.release(1);
    desk.release(2);
    desk.settle(0);
    desk.waits(4);
    let (first, later) = (desk.now, desk.later);
    assert_eq!(desk.list(first), (vec![0], 1));
    desk.settle(1);
    assert_eq!(desk.tries(5), [Did::Ask]);
    let second = desk.now;
    assert_eq!(desk.list(second), (vec![1], 1));
    assert_eq!(
        desk.grant(first, &[]),
        [Did::Ask],
        "slot 0 was asked for before 5 had come"
    );
    let third = desk.now;
    assert_eq!(desk.list(third), (vec![0], 1));
    assert_eq!(desk.grant(second, &[]), [], "slot 0 is in question");
    assert_eq!(desk.list(later), (vec![1], 1));
    // Slot 1 is in question again, but 5 had his chance at it.
    assert_eq!(desk.grant(third, &[]), [Did::Denied(5)]);
}

#[test]
fn a_try_waits_for_a_slot_that_is_being_given_back() {
    let mut desk = Desk::unordered(1).filled();
    assert_eq!(desk.release(1), [Did::Release(0)]);
    assert_eq!(desk.tries(2), []);
    assert_eq!(desk.settle(0), [Did::Ask]);
    desk.list(desk.now);
    assert_eq!(desk.grant(desk.now, &[0]), [Did::Has(2, 0)]);
}

#[test]
fn slots_that_were_left_to_others_are_tried_again_even_if_nobody_waits_any_more() {
    let mut desk = Desk::bounded(1, HandOverBound::new(0, Duration::MAX)).filled();
    assert_eq!(desk.waits(2), [Did::AskLater]);
    let early = desk.later;
    assert_eq!(desk.release(1), [Did::Release(0)]);
    desk.leave(2);
    assert_eq!(desk.tries(3), [Did::Denied(3)], "the others have their chance");
    assert_eq!(desk.list(early), (vec![], 0));
    assert_eq!(
        desk.grant(early, &[]),
        [Did::AskLater],
        "that interval had begun before"
    );
    assert_eq!(desk.list(desk.later), (vec![], 0));
    assert_eq!(desk.grant(desk.later, &[]), []);
    assert_eq!(desk.tries(4), [Did::Ask]);
    desk.list(desk.now);
    assert_eq!(desk.grant(desk.now, &[0]), [Did::Has(4, 0)]);
}

#[test]
fn a_try_behind_one_who_waits_does_not_overtake_him() {
    let mut desk = Desk::new(2);
    desk.waits(1);
    desk.tries(2);
    assert_eq!(desk.list(desk.now), (vec![0, 1], 2));
    assert_eq!(desk.grant(desk.now, &[1]), [Did::Has(1, 1), Did::Denied(2)]);
}

#[test]
fn a_slot_is_asked_for_again_only_when_the_engine_has_its_release() {
    let mut desk = Desk::full(1);
    desk.is_slow = true;
    assert_eq!(desk.release(1), [Did::Release(0)]);
    assert_eq!(desk.tries(2), []);
    assert_eq!(desk.waits(3), [Did::AskLater]);
    assert_eq!(desk.list(desk.later), (vec![], 0));
    assert_eq!(desk.settle(0), [Did::Ask]);
    assert_eq!(desk.list(desk.now), (vec![0], 1));
}
