use super::desk::{Desk, Did};

#[test]
fn one_who_waits_asks_now_and_again_after_each_interval() {
    let mut desk = Desk::new(1);
    assert_eq!(desk.waits(1), [Did::Ask, Did::AskLater]);
    desk.list(desk.now);
    assert_eq!(desk.grant(desk.now, &[]), []);
    for _ in 0..5 {
        let later = desk.later;
        assert_eq!(desk.list(later), (vec![0], 1));
        assert_eq!(desk.grant(later, &[]), [Did::AskLater]);
    }
    desk.list(desk.later);
    assert_eq!(desk.grant(desk.later, &[0]), [Did::Has(1, 0)]);
}

#[test]
fn one_question_asks_for_all_who_wait() {
    let mut desk = Desk::new(4);
    assert_eq!(desk.waits(1), [Did::Ask, Did::AskLater]);
    for who in 2..=6 {
        assert_eq!(desk.waits(who), [], "one question is on its way already");
    }
    assert_eq!(desk.list(desk.now), (vec![0, 1, 2, 3], 4));
    assert_eq!(
        desk.grant(desk.now, &[3, 0, 2]),
        [Did::Has(1, 3), Did::Has(2, 0), Did::Has(3, 2)]
    );
}

#[test]
fn no_slot_is_in_two_questions() {
    let mut desk = Desk::unordered(2).filled();
    desk.release(1);
    desk.release(2);
    desk.settle(0);
    desk.waits(3);
    let (first, later) = (desk.now, desk.later);
    assert_eq!(desk.list(first), (vec![0], 1));
    assert_eq!(desk.waits(4), []);
    assert_eq!(desk.settle(1), [Did::Ask]);
    let second = desk.now;
    assert_eq!(desk.list(second), (vec![1], 1));
    assert_eq!(desk.list(later), (vec![], 0));
    assert_eq!(desk.grant(second, &[1]), [Did::Has(3, 1)]);
    assert_eq!(desk.grant(first, &[0]), [Did::Has(4, 0)]);
}

#[test]
fn a_question_asks_for_no_more_than_others_have_not_asked_for() {
    let mut desk = Desk::unordered(3).filled();
    for who in 1..=3 {
        desk.release(who);
    }
    desk.settle(0);
    desk.waits(4);
    let first = desk.now;
    assert_eq!(desk.list(first), (vec![0], 1));
    desk.leave(4);
    desk.settle(1);
    desk.settle(2);
    assert_eq!(desk.waits(5), [], "what was asked for 4 will serve 5");
    assert_eq!(desk.list(desk.later), (vec![], 0));
    assert_eq!(desk.grant(desk.later, &[]), [Did::AskLater]);
    assert_eq!(desk.grant(first, &[]), [Did::Ask]);
    assert_eq!(desk.list(desk.now), (vec![0, 1, 2], 1));
}

#[test]
fn slots_behind_the_last_that_was_needed_have_not_been_asked_for() {
    let mut desk = Desk::unordered(3).filled();
    for who in 1..=3 {
        desk.release(who);
    }
    desk.settle(0);
    desk.waits(4);
    desk.tries(5);
    let first = desk.now;
    assert_eq!(desk.list(first), (vec![0], 1));
    assert_eq!(desk.settle(1), [Did::Ask]);
    let second = desk.now;
    desk.settle(2);
    assert_eq!(desk.list(second), (vec![1, 2], 1));
    assert_eq!(desk.grant(second, &[1]), [Did::Has(4, 1)]);
    assert_eq!(desk.grant(first, &[]), [Did::Ask], "slot 2 has not been tried");
    assert_eq!(desk.list(desk.now), (vec![0, 2], 1));
    assert_eq!(desk.grant(desk.now, &[2]), [Did::Has(5, 2)]);
}

#[test]
fn the_list_is_turned() {
    let mut desk = Desk::new(4);
    for (rotation, first) in [(1, 1), (6, 2), (usize::MAX, 3)] {
        desk.tries(1);
        let (slots, _) = desk.table.candidates(desk.now, rotation);
        assert_eq!(slots.len(), 4);
        assert_eq!(slots[0], first);
        assert_eq!(desk.answer(desk.now, Ok(Vec::new())), [Did::Denied(1)]);
    }
}

#[test]
fn a_question_that_is_not_known_lists_nothing_and_its_answer_does_nothing() {
    let mut desk = Desk::new(2);
    assert_eq!(desk.list(77), (vec![], 0));
    assert_eq!(desk.answer(77, Ok(Vec::new())), []);
}

#[test]
fn a_slot_that_nobody_wants_any_more_goes_back_at_once() {
    let mut desk = Desk::new(2);
    desk.waits(1);
    desk.list(desk.now);
    desk.leave(1);
    assert_eq!(desk.grant(desk.now, &[1]), [Did::Release(1)]);
    assert_eq!(desk.table.permits(), 0);
    // Nor is anybody asked for any more.
    assert_eq!(desk.list(desk.later), (vec![], 0));
    assert_eq!(desk.grant(desk.later, &[]), []);
}

#[test]
fn a_slot_that_is_not_needed_by_the_one_who_asked_goes_to_the_next() {
    let mut desk = Desk::new(1);
    desk.waits(1);
    desk.list(desk.now);
    desk.waits(2);
    desk.leave(1);
    assert_eq!(desk.grant(desk.now, &[0]), [Did::Has(2, 0)]);
}

#[test]
fn an_unordered_slot_that_nobody_wants_is_given_back_before_it_is_asked_for_again() {
    let mut desk = Desk::unordered(1);
    desk.waits(1);
    let first = desk.now;
    desk.list(first);
    desk.leave(1);
    assert_eq!(desk.grant(first, &[0]), [Did::Release(0)]);
    assert_eq!(desk.waits(2), []);
    assert_eq!(desk.list(desk.later), (vec![], 0));
    assert_eq!(desk.settle(0), [Did::Ask]);
}

#[test]
fn a_slot_that_came_back_is_asked_for_by_those_who_have_waited_all_along() {
    let mut desk = Desk::unordered(1).filled();
    desk.release(1);
    desk.waits(2);
    let later = desk.later;
    desk.list(later);
    desk.grant(later, &[]);
    assert_eq!(desk.settle(0), [Did::Ask]);
    assert_eq!(desk.list(desk.now), (vec![0], 1));
}
