use std::time::Duration;

use super::desk::{Desk, Did, FIRST, ONCE, QUEUE, WAIT};
use crate::{
    engine::{Attempt, EngineErrorKind},
    gate::Want,
    mode::Mode::{Exclusive, Shared},
};

#[test]
fn one_who_leaves_during_the_attempt_gives_its_grant_back_at_once() {
    for want in [Want::Try, WAIT, Want::Poll] {
        let mut desk = Desk::new();
        desk.enter(1, Exclusive, want);
        assert_eq!(desk.leave(1), []);
        assert_eq!(desk.grant(), [Did::Release(Exclusive)]);
        assert_eq!(desk.table.len(), 0);
        assert_eq!(desk.table.counters.abandoned, 1);
    }
}

#[test]
fn one_who_leaves_during_the_attempt_ends_with_its_denial_or_error() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.leave(1);
    assert_eq!(desk.busy(), []);
    assert_eq!(desk.table.len(), 0);

    desk.enter(2, Exclusive, WAIT);
    desk.leave(2);
    assert_eq!(desk.fail(EngineErrorKind::ConnectionLost), []);
    assert_eq!(desk.table.len(), 0);
}

#[test]
fn an_attempt_that_was_left_serves_the_next_who_comes() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, Want::Try);
    desk.leave(1);
    assert_eq!(desk.enter(2, Exclusive, WAIT), []);
    assert_eq!(desk.grant(), [Did::Has(2)]);
}

#[test]
fn the_last_who_leaves_abandons_the_wait() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.busy();
    desk.enter(2, Exclusive, WAIT);
    assert_eq!(desk.leave(1), [], "the wait serves the next");
    assert_eq!(desk.leave(2), [Did::Abandon]);
    assert_eq!(desk.busy(), []);
    assert_eq!(desk.table.len(), 0);
}

#[test]
fn a_grant_that_crossed_the_abandoning_goes_back_at_once() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.busy();
    assert_eq!(desk.leave(1), [Did::Abandon]);
    assert_eq!(desk.grant(), [Did::Release(Exclusive)]);
    assert_eq!(desk.table.len(), 0);
}

#[test]
fn a_grant_that_crossed_the_abandoning_serves_whoever_has_come() {
    let mut desk = Desk::new();
    desk.enter(1, Shared, WAIT);
    desk.busy();
    desk.leave(1);
    assert_eq!(desk.enter(2, Shared, WAIT), []);
    assert_eq!(desk.enter(3, Exclusive, WAIT), []);
    assert_eq!(desk.grant(), [Did::Has(2)]);
}

#[test]
fn whoever_comes_during_the_abandoning_is_asked_for_when_it_is_answered() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.busy();
    desk.leave(1);
    assert_eq!(desk.enter(2, Shared, WAIT), []);
    assert_eq!(desk.leave(2), []);
    assert_eq!(desk.enter(3, Shared, WAIT), []);
    assert_eq!(desk.busy(), [Did::Ask(Shared, FIRST)]);
}

#[test]
fn a_wait_that_no_longer_serves_the_first_in_the_queue_is_abandoned() {
    let cases = [
        ((Exclusive, WAIT), (Shared, WAIT)),
        ((Shared, WAIT), (Exclusive, WAIT)),
        ((Exclusive, WAIT), (Exclusive, Want::Poll)),
        ((Exclusive, Want::Poll), (Exclusive, WAIT)),
    ];
    for ((mode, want), (next_mode, next_want)) in cases {
        let mut desk = Desk::new();
        desk.enter(1, mode, want);
        desk.busy();
        desk.enter(2, next_mode, next_want);
        assert_eq!(desk.leave(1), [Did::Abandon]);
        assert_eq!(desk.busy(), [Did::Ask(next_mode, FIRST)]);
        assert_eq!(desk.grant(), [Did::Has(2)]);
    }
}

#[test]
fn one_who_leaves_from_the_middle_changes_nothing_for_the_others() {
    let mut desk = Desk::held(Exclusive);
    for who in 2..=4 {
        desk.enter(who, Exclusive, WAIT);
    }
    assert_eq!(desk.leave(3), []);
    assert_eq!(desk.release(1), [Did::Has(2)]);
    assert_eq!(desk.release(2), [Did::Has(4)]);
}

#[test]
fn one_who_has_been_served_cannot_leave() {
    let mut desk = Desk::held(Exclusive);
    assert_eq!(desk.leave(1), []);
    assert_eq!(desk.table.holders(), 1);
    assert_eq!(desk.table.counters.abandoned, 0);
}

#[test]
fn those_behind_an_exclusive_waiter_join_when_it_leaves() {
    let mut desk = Desk::held(Shared);
    desk.enter(2, Exclusive, WAIT);
    desk.enter(3, Shared, WAIT);
    desk.enter(4, Shared, WAIT);
    assert_eq!(desk.leave(2), [Did::Has(3), Did::Has(4)]);
}

#[test]
fn those_behind_an_exclusive_waiter_ask_when_it_leaves_after_the_bound() {
    let mut desk = Desk::held(Shared);
    desk.pass(Duration::from_secs(1));
    desk.enter(2, Exclusive, WAIT);
    desk.enter(3, Shared, WAIT);
    assert_eq!(desk.leave(2), [Did::Ask(Shared, Attempt::Probe)]);
    assert_eq!(desk.nobody_queues(), [Did::Has(3)]);
}

#[test]
fn one_who_leaves_during_a_question_leaves_it_to_the_next() {
    let mut desk = Desk::held(Shared);
    desk.pass(Duration::from_secs(1));
    desk.enter(2, Shared, WAIT);
    desk.enter(3, Shared, WAIT);
    assert_eq!(desk.leave(2), []);
    assert_eq!(desk.nobody_queues(), [Did::Has(3)]);
}

#[test]
fn one_who_leaves_during_an_unordered_release_is_not_asked_for() {
    let mut desk = Desk::unordered();
    desk.enter(1, Exclusive, WAIT);
    desk.grant();
    desk.enter(2, Exclusive, WAIT);
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.release(1), [Did::Release(Exclusive)]);
    assert_eq!(desk.leave(2), []);
    assert_eq!(desk.settle(), []);
    assert_eq!(desk.table.len(), 0);
}

#[test]
fn an_unordered_grant_that_crossed_the_abandoning_is_settled_before_the_next_attempt() {
    let mut desk = Desk::unordered();
    desk.enter(1, Exclusive, WAIT);
    assert_eq!(desk.busy(), [Did::Ask(Exclusive, QUEUE)]);
    desk.leave(1);
    desk.enter(2, Shared, Want::Try);
    assert_eq!(desk.grant(), [Did::Release(Exclusive)]);
    assert_eq!(desk.settle(), [Did::Ask(Shared, ONCE)]);
}

#[test]
fn one_who_leaves_before_the_engine_has_his_request_abandons_it_when_it_has() {
    for want in [WAIT, Want::Poll] {
        let mut desk = Desk::new();
        desk.enter(1, Exclusive, want);
        desk.is_slow = true;
        desk.busy();
        assert_eq!(desk.leave(1), [], "the engine would not know what to abandon");
        assert_eq!(desk.catch_up(), [Did::Abandon]);
        assert_eq!(desk.busy(), []);
        assert_eq!(desk.table.len(), 0);
    }
}

#[test]
fn a_request_that_was_answered_before_the_shell_came_back_is_not_abandoned() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.is_slow = true;
    desk.busy();
    assert_eq!(desk.grant(), [Did::Has(1)]);
    assert_eq!(desk.catch_up(), []);
}
