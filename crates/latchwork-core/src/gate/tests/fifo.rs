use super::desk::{Desk, Did, FIRST, ONCE, QUEUE, WAIT};
use crate::{
    gate::{Released, Want},
    mode::Mode::{Exclusive, Shared},
};

#[test]
fn the_key_goes_from_one_to_the_next_in_order_without_a_word_to_the_engine() {
    let mut desk = Desk::held(Exclusive);
    for who in 2..=50 {
        assert_eq!(desk.enter(who, Exclusive, WAIT), []);
    }
    for who in 1..50 {
        assert_eq!(desk.release(who), [Did::Has(who + 1)]);
        assert_eq!(desk.released, Some(Released::Kept));
    }
    assert_eq!(desk.release(50), [Did::Release(Exclusive)]);
    assert_eq!(desk.released, Some(Released::Sent));
    assert_eq!(desk.table.len(), 0);
    assert_eq!(desk.table.counters.handed_over, 49);
    assert_eq!(desk.table.counters.granted, 1);
    assert_eq!(desk.table.counters.released, 50);
}

#[test]
fn one_who_waits_is_asked_for_once_and_then_queues() {
    for (want, attempt) in [(WAIT, QUEUE), (Want::Poll, crate::engine::Attempt::Poll)] {
        let mut desk = Desk::new();
        assert_eq!(desk.enter(1, Shared, want), [Did::Ask(Shared, FIRST)]);
        assert_eq!(desk.busy(), [Did::Ask(Shared, attempt)]);
        assert_eq!(desk.grant(), [Did::Has(1)]);
    }
}

#[test]
fn those_who_come_while_the_engine_waits_have_the_key_after_the_first() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.busy();
    assert_eq!(desk.enter(2, Exclusive, WAIT), []);
    assert_eq!(desk.grant(), [Did::Has(1)]);
    assert_eq!(desk.release(1), [Did::Has(2)]);
}

#[test]
fn shared_waiters_in_a_row_are_served_together_up_to_an_exclusive_one() {
    let mut desk = Desk::new();
    desk.enter(1, Shared, WAIT);
    desk.enter(2, Shared, WAIT);
    desk.enter(3, Exclusive, WAIT);
    desk.enter(4, Shared, WAIT);
    assert_eq!(desk.grant(), [Did::Has(1), Did::Has(2)]);
    assert_eq!(desk.release(1), []);
    assert_eq!(desk.released, Some(Released::Kept));
    assert_eq!(desk.release(2), [Did::Release(Shared), Did::Ask(Exclusive, FIRST)]);
    assert_eq!(desk.grant(), [Did::Has(3)]);
    assert_eq!(desk.release(3), [Did::Release(Exclusive), Did::Ask(Shared, FIRST)]);
    assert_eq!(desk.grant(), [Did::Has(4)]);
}

#[test]
fn a_grant_that_serves_nobody_any_more_goes_back_and_the_next_is_asked_for() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, Want::Try);
    desk.enter(2, Shared, WAIT);
    desk.leave(1);
    assert_eq!(desk.grant(), [Did::Release(Exclusive), Did::Ask(Shared, FIRST)]);
    assert_eq!(desk.grant(), [Did::Has(2)]);
}

#[test]
fn an_unordered_grant_is_given_back_before_the_key_is_asked_for_again() {
    let mut desk = Desk::unordered();
    desk.enter(1, Exclusive, WAIT);
    desk.grant();
    desk.enter(2, Shared, WAIT);
    assert_eq!(desk.release(1), [Did::Release(Exclusive)]);
    assert_eq!(desk.enter(3, Shared, WAIT), []);
    assert_eq!(desk.settle(), [Did::Ask(Shared, FIRST)]);
    assert_eq!(desk.grant(), [Did::Has(2), Did::Has(3)]);
}

#[test]
fn an_unordered_release_that_nobody_waits_for_leaves_no_entry() {
    let mut desk = Desk::unordered();
    desk.enter(1, Exclusive, WAIT);
    desk.grant();
    desk.release(1);
    assert_eq!(desk.table.len(), 1);
    assert_eq!(desk.settle(), []);
    assert_eq!(desk.table.len(), 0);
    // An answer that comes twice does no harm.
    assert_eq!(desk.settle(), []);
}

#[test]
fn a_hold_is_given_up_once() {
    let mut desk = Desk::held(Exclusive);
    assert_eq!(desk.release(1), [Did::Release(Exclusive)]);
    assert_eq!(desk.release(1), []);
    assert_eq!(desk.released, Some(Released::Gone));

    // Nor does a late release touch the next holder.
    desk.enter(2, Exclusive, WAIT);
    desk.grant();
    assert_eq!(desk.release(1), []);
    assert_eq!(desk.released, Some(Released::Gone));
    assert_eq!(desk.table.holders(), 1);
}

#[test]
fn a_key_is_asked_for_again_only_when_the_engine_has_its_release() {
    for want in [WAIT, Want::Try] {
        let mut desk = Desk::held(Exclusive);
        desk.is_slow = true;
        assert_eq!(desk.release(1), [Did::Release(Exclusive)]);
        assert_eq!(desk.enter(2, Exclusive, want), []);
        let attempt = if want == WAIT { FIRST } else { ONCE };
        assert_eq!(desk.catch_up(), [Did::Ask(Exclusive, attempt)]);
        assert_eq!(desk.grant(), [Did::Has(2)]);
    }
}
