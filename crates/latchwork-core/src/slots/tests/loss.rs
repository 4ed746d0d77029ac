use super::desk::{Desk, Did};
use crate::{
    engine::{EngineError, EngineErrorKind},
    gate::Released,
};

#[test]
fn lost_slots_are_free_and_asked_for_and_their_late_release_frees_nothing() {
    let mut desk = Desk::full(2);
    desk.waits(3);
    assert_eq!(desk.lose_session(), [Did::Ask]);
    assert_eq!(desk.table.permits(), 0);
    assert_eq!(desk.list(desk.now), (vec![0, 1], 1));
    assert_eq!(desk.grant(desk.now, &[0]), [Did::Has(3, 0)]);
    assert_eq!(desk.release(1), []);
    assert_eq!(desk.released, Some(Released::Gone));
    assert_eq!(desk.release(2), []);
    assert_eq!(desk.table.permits(), 1);
}

#[test]
fn those_who_have_waited_for_long_ask_at_once_after_a_loss() {
    let mut desk = Desk::full(1);
    desk.waits(2);
    let later = desk.later;
    desk.list(later);
    assert_eq!(desk.grant(later, &[]), [Did::AskLater]);
    assert_eq!(desk.lose_session(), [Did::Ask]);
}

#[test]
fn a_slot_on_a_session_that_has_ended_since_is_not_handed_out() {
    let mut desk = Desk::new(1);
    desk.waits(1);
    desk.tries(2);
    let first = desk.now;
    desk.list(first);
    let grant = desk.a_grant();
    assert_eq!(desk.lose_session(), []);
    assert_eq!(
        desk.answer(first, Ok(vec![(0, grant)])),
        [Did::Failed(2, EngineErrorKind::ConnectionLost)]
    );
    assert_eq!(desk.table.permits(), 0);
    assert_eq!(desk.list(desk.later), (vec![0], 1));
    assert_eq!(desk.grant(desk.later, &[0]), [Did::Has(1, 0)]);
}

#[test]
fn an_outage_fails_those_who_try_and_those_who_wait_ask_later() {
    for kind in [EngineErrorKind::Unavailable, EngineErrorKind::ConnectionLost] {
        let mut desk = Desk::new(1);
        desk.waits(1);
        desk.tries(2);
        desk.list(desk.now);
        assert_eq!(desk.fail(desk.now, kind), [Did::Failed(2, kind)]);
        let later = desk.later;
        desk.list(later);
        assert_eq!(desk.fail(later, kind), [Did::AskLater]);
        desk.list(desk.later);
        assert_eq!(desk.grant(desk.later, &[0]), [Did::Has(1, 0)]);
    }
}

#[test]
fn a_question_that_was_never_put_can_fail_too() {
    let mut desk = Desk::new(1);
    desk.waits(1);
    assert_eq!(desk.fail(desk.now, EngineErrorKind::Unavailable), []);
    assert_eq!(desk.list(desk.later), (vec![0], 1));
}

#[test]
fn any_other_error_is_told_to_all() {
    for kind in [EngineErrorKind::CapacityExceeded, EngineErrorKind::Refused] {
        let mut desk = Desk::new(1);
        desk.waits(1);
        desk.tries(2);
        desk.list(desk.now);
        assert_eq!(desk.fail(desk.now, kind), [Did::Failed(1, kind), Did::Failed(2, kind)]);
    }
}

#[test]
fn a_silent_server_is_told_to_those_who_try_and_its_late_grant_goes_to_those_who_wait() {
    let error = EngineError::new(EngineErrorKind::Unavailable);
    let mut desk = Desk::new(1);
    desk.tries(1);
    desk.waits(2);
    let first = desk.now;
    desk.list(first);
    assert_eq!(
        desk.with(|table, actions| table.server_silent(&error, actions)),
        [Did::Failed(1, EngineErrorKind::Unavailable)]
    );
    assert_eq!(desk.grant(first, &[0]), [Did::Has(2, 0)]);
}

#[test]
fn closing_answers_all_who_wait_and_gives_what_is_on_its_way_back() {
    let error = EngineError::new(EngineErrorKind::Closed);
    let mut desk = Desk::new(2);
    desk.waits(1);
    desk.tries(2);
    desk.list(desk.now);
    assert_eq!(
        desk.with(|table, actions| table.close(&error, actions)),
        [
            Did::Failed(1, EngineErrorKind::Closed),
            Did::Failed(2, EngineErrorKind::Closed)
        ]
    );
    assert_eq!(desk.grant(desk.now, &[0, 1]), [Did::Release(0), Did::Release(1)]);
}
