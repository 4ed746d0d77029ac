use std::time::Duration;

use super::desk::{Desk, Did, FIRST, ONCE, QUEUE, WAIT};
use crate::{
    engine::{EngineError, EngineErrorKind},
    gate::{Released, Want},
    mode::Mode::{Exclusive, Shared},
};

#[test]
fn those_who_wait_behind_a_lost_hold_ask_again_and_its_late_release_frees_nothing() {
    let mut desk = Desk::held(Exclusive);
    desk.enter(2, Exclusive, WAIT);
    assert_eq!(desk.lose_session(), [Did::Ask(Exclusive, FIRST)]);
    assert_eq!(desk.table.counters.lost, 1);
    assert_eq!(desk.release(1), []);
    assert_eq!(desk.released, Some(Released::Gone));
    assert_eq!(desk.grant(), [Did::Has(2)]);
    assert_eq!(desk.release(1), []);
    assert_eq!(desk.released, Some(Released::Gone));
    assert_eq!(desk.table.holders(), 1);
}

#[test]
fn a_lost_hold_that_nobody_waits_behind_leaves_no_entry() {
    let mut desk = Desk::held(Shared);
    desk.enter(2, Shared, WAIT);
    assert_eq!(desk.lose_session(), []);
    assert_eq!(desk.table.len(), 0);
    assert_eq!(desk.release(1), []);
    assert_eq!(desk.release(2), []);
}

#[test]
fn whoever_finds_a_lost_hold_before_the_gate_is_told_of_it_asks_again() {
    for want in [WAIT, Want::Try] {
        let mut desk = Desk::held(Exclusive);
        let lost = desk.lose_session_untold();
        let attempt = if want == WAIT { FIRST } else { ONCE };
        assert_eq!(desk.enter(2, Exclusive, want), [Did::Ask(Exclusive, attempt)]);
        assert_eq!(desk.with(|table, actions| table.session_lost(&lost, actions)), []);
        assert_eq!(desk.release(1), []);
        assert_eq!(desk.grant(), [Did::Has(2)]);
        assert_eq!(desk.table.counters.lost, 1);
    }
}

#[test]
fn a_lost_hold_that_is_given_up_before_the_gate_is_told_of_it_is_counted_once() {
    let mut desk = Desk::held(Exclusive);
    let lost = desk.lose_session_untold();
    desk.release(1);
    assert_eq!(desk.released, Some(Released::Sent));
    assert_eq!(desk.with(|table, actions| table.session_lost(&lost, actions)), []);
    assert_eq!(desk.table.counters.lost, 1);
}

#[test]
fn the_loss_of_one_session_touches_no_hold_on_another() {
    let mut desk = Desk::new();
    let lost = desk.lose_session_untold();
    desk.enter(1, Exclusive, WAIT);
    desk.grant();
    desk.enter(2, Exclusive, WAIT);
    assert_eq!(desk.with(|table, actions| table.session_lost(&lost, actions)), []);
    assert_eq!(desk.release(1), [Did::Has(2)]);
}

#[test]
fn a_grant_on_a_session_that_has_ended_since_is_not_handed_out() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.enter(2, Exclusive, Want::Try);
    let grant = desk.a_grant();
    // The gate is told of the loss before the answer comes: nobody would tell it afterwards.
    assert_eq!(desk.lose_session(), []);
    assert_eq!(
        desk.answer(Ok(Some(grant))),
        [
            Did::Failed(2, EngineErrorKind::ConnectionLost),
            Did::Ask(Exclusive, FIRST)
        ]
    );
    assert_eq!(desk.grant(), [Did::Has(1)]);
}

#[test]
fn a_loss_begins_the_row_of_turns_anew() {
    let mut desk = Desk::held(Exclusive);
    desk.pass(Duration::from_secs(1));
    desk.enter(2, Exclusive, WAIT);
    assert_eq!(desk.release(1), [Did::Release(Exclusive), Did::Ask(Exclusive, QUEUE)]);
    desk.grant();
    desk.enter(3, Exclusive, WAIT);
    assert_eq!(desk.lose_session(), [Did::Ask(Exclusive, FIRST)]);
}

#[test]
fn a_loss_during_a_question_makes_it_void() {
    let mut desk = Desk::held(Shared);
    desk.pass(Duration::from_secs(1));
    desk.enter(2, Shared, WAIT);
    assert_eq!(desk.lose_session(), [Did::Ask(Shared, FIRST)]);
    assert_eq!(desk.nobody_queues(), []);
    assert_eq!(desk.grant(), [Did::Has(2)]);
}

#[test]
fn an_outage_keeps_those_who_wait_and_fails_those_who_try() {
    for kind in [EngineErrorKind::Unavailable, EngineErrorKind::ConnectionLost] {
        let mut desk = Desk::new();
        desk.enter(1, Exclusive, WAIT);
        desk.enter(2, Exclusive, Want::Try);
        desk.enter(3, Shared, WAIT);
        assert_eq!(desk.fail(kind), [Did::Failed(2, kind), Did::Ask(Exclusive, FIRST)]);
        assert_eq!(desk.table.counters.failed, 1);
        // The same from within the wait.
        desk.busy();
        assert_eq!(desk.fail(kind), [Did::Ask(Exclusive, FIRST)]);
        assert_eq!(desk.grant(), [Did::Has(1)]);
    }
}

#[test]
fn any_other_error_is_told_to_all() {
    for kind in [
        EngineErrorKind::Refused,
        EngineErrorKind::CapacityExceeded,
        EngineErrorKind::Closed,
        EngineErrorKind::Failed,
    ] {
        let mut desk = Desk::new();
        desk.enter(1, Exclusive, WAIT);
        desk.enter(2, Exclusive, Want::Try);
        desk.enter(3, Shared, Want::Poll);
        assert_eq!(
            desk.fail(kind),
            [Did::Failed(1, kind), Did::Failed(2, kind), Did::Failed(3, kind)]
        );
        assert_eq!(desk.table.len(), 0);
        assert_eq!(desk.table.counters.failed, 3);
    }
}

#[test]
fn an_error_after_the_abandoning_reaches_whoever_has_come() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.busy();
    desk.leave(1);
    desk.enter(2, Exclusive, WAIT);
    assert_eq!(desk.fail(EngineErrorKind::ConnectionLost), [Did::Ask(Exclusive, FIRST)]);
}

#[test]
fn a_silent_server_is_told_to_those_who_try_and_its_late_grant_goes_back() {
    let error = EngineError::new(EngineErrorKind::Unavailable);
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, Want::Try);
    assert_eq!(
        desk.with(|table, actions| table.server_silent(&error, actions)),
        [Did::Failed(1, EngineErrorKind::Unavailable)]
    );
    assert_eq!(desk.grant(), [Did::Release(Exclusive)]);
    assert_eq!(desk.table.len(), 0);

    desk.enter(2, Exclusive, WAIT);
    desk.enter(3, Exclusive, Want::Try);
    assert_eq!(
        desk.with(|table, actions| table.server_silent(&error, actions)),
        [Did::Failed(3, EngineErrorKind::Unavailable)]
    );
    assert_eq!(desk.grant(), [Did::Has(2)]);
}

#[test]
fn closing_answers_all_who_wait_and_leaves_the_holders() {
    let error = EngineError::new(EngineErrorKind::Closed);
    let mut desk = Desk::held(Exclusive);
    desk.enter(2, Exclusive, WAIT);
    desk.enter(3, Shared, WAIT);
    assert_eq!(
        desk.with(|table, actions| table.close(&error, actions)),
        [
            Did::Failed(2, EngineErrorKind::Closed),
            Did::Failed(3, EngineErrorKind::Closed)
        ]
    );
    assert_eq!(desk.table.counters.failed, 2);
    assert_eq!(desk.table.holders(), 1);
    assert_eq!(desk.release(1), [Did::Release(Exclusive)]);
    assert_eq!(desk.table.len(), 0);
}

#[test]
fn closing_abandons_the_wait_and_gives_a_grant_on_its_way_back() {
    let error = EngineError::new(EngineErrorKind::Closed);
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.busy();
    assert_eq!(
        desk.with(|table, actions| table.close(&error, actions)),
        [Did::Failed(1, EngineErrorKind::Closed), Did::Abandon]
    );
    assert_eq!(desk.grant(), [Did::Release(Exclusive)]);
    assert_eq!(desk.table.len(), 0);
}
