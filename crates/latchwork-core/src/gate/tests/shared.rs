use std::time::Duration;

use super::desk::{Desk, Did, FIRST, QUEUE, WAIT};
use crate::{
    engine::{Attempt, EngineErrorKind},
    gate::{HandOverBound, Want},
    mode::Mode::{Exclusive, Shared},
};

const TURN: Duration = Duration::from_millis(25);
const PROBE: Did = Did::Ask(Shared, Attempt::Probe);

/// A desk at which 1 holds the key shared, for longer than one turn.
fn long_held() -> Desk {
    let desk = Desk::held(Shared);
    desk.pass(TURN);
    desk
}

#[test]
fn a_shared_hold_is_joined_without_a_word_to_the_engine() {
    for want in [WAIT, Want::Poll, Want::Try] {
        let mut desk = Desk::held(Shared);
        assert_eq!(desk.enter(2, Shared, want), [Did::Has(2)]);
        assert_eq!(desk.release(1), []);
        assert_eq!(desk.release(2), [Did::Release(Shared)]);
        assert_eq!(desk.table.len(), 0);
    }
}

#[test]
fn nobody_joins_past_an_exclusive_waiter() {
    let mut desk = Desk::held(Shared);
    desk.enter(2, Exclusive, WAIT);
    assert_eq!(desk.enter(3, Shared, WAIT), []);
    assert_eq!(desk.release(1), [Did::Release(Shared), Did::Ask(Exclusive, FIRST)]);
}

#[test]
fn to_join_counts_as_a_hand_over_and_at_the_bound_the_server_is_asked() {
    let mut desk = Desk::bounded(HandOverBound::new(2, Duration::from_secs(3600)));
    desk.enter(1, Shared, WAIT);
    desk.grant();
    assert_eq!(desk.enter(2, Shared, WAIT), [Did::Has(2)]);
    assert_eq!(desk.enter(3, Shared, WAIT), [Did::Has(3)]);
    assert_eq!(desk.enter(4, Shared, WAIT), [PROBE]);
    assert_eq!(desk.enter(5, Shared, Want::Try), []);
    assert_eq!(desk.nobody_queues(), [Did::Has(4), Did::Has(5)]);
    assert_eq!(desk.table.holders(), 5);
}

#[test]
fn where_nobody_queues_the_turn_begins_anew() {
    let mut desk = long_held();
    assert_eq!(desk.enter(2, Shared, WAIT), [PROBE]);
    assert_eq!(desk.nobody_queues(), [Did::Has(2)]);
    assert_eq!(desk.enter(3, Shared, WAIT), [Did::Has(3)]);
    desk.pass(TURN);
    assert_eq!(desk.enter(4, Shared, WAIT), [PROBE]);
}

#[test]
fn where_somebody_queues_those_who_wait_stay_and_those_who_try_are_denied() {
    let mut desk = long_held();
    desk.enter(2, Shared, WAIT);
    desk.enter(3, Shared, Want::Try);
    assert_eq!(desk.somebody_queues(), [Did::Denied(3)]);
    assert_eq!(desk.enter(4, Shared, Want::Try), [Did::Denied(4)]);
    assert_eq!(desk.enter(5, Shared, WAIT), []);
    assert_eq!(desk.release(1), [Did::Release(Shared), Did::Ask(Shared, QUEUE)]);
    assert_eq!(desk.grant(), [Did::Has(2), Did::Has(5)]);
}

#[test]
fn without_hand_over_a_key_is_still_shared_where_nobody_queues() {
    for bound in [HandOverBound::new(0, TURN), HandOverBound::new(9, Duration::ZERO)] {
        let mut desk = Desk::bounded(bound);
        desk.enter(1, Shared, WAIT);
        desk.grant();
        assert_eq!(desk.enter(2, Shared, WAIT), [PROBE]);
        assert_eq!(desk.enter(3, Shared, Want::Try), []);
        assert_eq!(desk.nobody_queues(), [Did::Has(2), Did::Has(3)]);
    }
}

#[test]
fn an_exclusive_one_who_comes_during_the_question_is_not_answered_by_it() {
    let mut desk = long_held();
    desk.enter(2, Shared, WAIT);
    assert_eq!(desk.enter(3, Exclusive, Want::Try), [Did::Denied(3)]);
    assert_eq!(desk.enter(4, Exclusive, WAIT), []);
    assert_eq!(desk.enter(5, Shared, WAIT), []);
    assert_eq!(desk.nobody_queues(), [Did::Has(2)]);
    assert_eq!(desk.table.holders(), 2);
}

#[test]
fn the_end_of_the_hold_makes_the_question_void() {
    let mut desk = long_held();
    desk.enter(2, Shared, WAIT);
    assert_eq!(desk.release(1), [Did::Release(Shared), Did::Ask(Shared, QUEUE)]);
    assert_eq!(desk.nobody_queues(), []);
    assert_eq!(desk.table.holders(), 0);
    assert_eq!(desk.grant(), [Did::Has(2)]);
}

#[test]
fn a_question_that_outlives_its_entry_does_nothing() {
    let mut desk = long_held();
    desk.enter(2, Shared, WAIT);
    desk.leave(2);
    assert_eq!(desk.release(1), [Did::Release(Shared)]);
    assert_eq!(desk.nobody_queues(), []);
    assert_eq!(desk.table.len(), 0);
}

#[test]
fn an_outage_fails_those_who_try_and_leaves_those_who_wait() {
    let mut desk = long_held();
    desk.enter(2, Shared, WAIT);
    desk.enter(3, Shared, Want::Try);
    let probe = desk.probe;
    let error = crate::engine::EngineError::new(EngineErrorKind::Unavailable);
    assert_eq!(
        desk.answer_flight(probe, Err(error)),
        [Did::Failed(3, EngineErrorKind::Unavailable)]
    );
    assert_eq!(desk.nudge(2), [PROBE]);
    assert_eq!(desk.nobody_queues(), [Did::Has(2)]);
}

#[test]
fn an_error_that_stays_fails_all_whom_the_question_was_for() {
    let mut desk = long_held();
    desk.enter(2, Shared, WAIT);
    desk.enter(3, Shared, Want::Try);
    desk.enter(4, Exclusive, WAIT);
    let probe = desk.probe;
    let error = crate::engine::EngineError::new(EngineErrorKind::Failed);
    assert_eq!(
        desk.answer_flight(probe, Err(error)),
        [
            Did::Failed(2, EngineErrorKind::Failed),
            Did::Failed(3, EngineErrorKind::Failed)
        ]
    );
    assert_eq!(desk.release(1), [Did::Release(Shared), Did::Ask(Exclusive, QUEUE)]);
}

#[test]
fn the_question_is_put_again_for_as_long_as_somebody_waits_behind_a_hold_that_could_be_shared() {
    let mut desk = long_held();
    desk.enter(2, Shared, WAIT);
    desk.enter(3, Shared, WAIT);
    assert_eq!(desk.nudge(2), [], "the question is open");
    desk.somebody_queues();
    assert_eq!(desk.nudge(3), [], "only the first in the queue asks");
    assert_eq!(desk.nudge(2), [PROBE]);
    desk.somebody_queues();
    assert_eq!(desk.nudge(2), [PROBE]);
    // Whoever queued has left, and the hold goes on.
    assert_eq!(desk.nobody_queues(), [Did::Has(2), Did::Has(3)]);
    assert_eq!(desk.nudge(2), []);
}

#[test]
fn one_who_came_while_the_hold_was_in_doubt_joins_when_it_is_not() {
    let mut desk = Desk::held(Shared);
    desk.session.suspend();
    assert_eq!(desk.enter(2, Shared, WAIT), []);
    assert_eq!(desk.nudge(2), [], "in doubt it can't be joined");
    desk.session.trust_until(crate::clock::Moment::NEVER);
    assert_eq!(desk.nudge(2), [Did::Has(2)]);
}

#[test]
fn a_hold_that_came_in_doubt_during_the_question_is_not_joined() {
    let mut desk = long_held();
    desk.enter(2, Shared, WAIT);
    desk.session.suspend();
    assert_eq!(desk.nobody_queues(), []);
    desk.session.trust_until(crate::clock::Moment::NEVER);
    assert_eq!(desk.nudge(2), [Did::Has(2)]);
}

#[test]
fn a_hold_in_doubt_is_given_back_and_not_handed_over() {
    let mut desk = Desk::held(Exclusive);
    desk.enter(2, Exclusive, WAIT);
    desk.session.suspend();
    assert_eq!(desk.release(1), [Did::Release(Exclusive), Did::Ask(Exclusive, FIRST)]);
}
