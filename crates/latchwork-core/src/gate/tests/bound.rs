use std::time::Duration;

use super::desk::{Desk, Did, FIRST, ONCE, QUEUE, STAY_OFF, WAIT};
use crate::{
    engine::Attempt,
    gate::{HandOverBound, Want},
    mode::Mode::{Exclusive, Shared},
};

const LONG: Duration = Duration::from_secs(3600);

fn counted(count: u32) -> Desk {
    Desk::bounded(HandOverBound::new(count, LONG))
}

#[test]
fn a_turn_ends_after_as_many_hand_overs_as_the_bound_says() {
    for count in 0..5 {
        let mut desk = counted(count);
        desk.enter(0, Exclusive, WAIT);
        desk.grant();
        for who in 0..count {
            desk.enter(who + 1, Exclusive, WAIT);
            assert_eq!(desk.release(who), [Did::Has(who + 1)], "hand-over {who} of {count}");
        }
        desk.enter(count + 1, Exclusive, WAIT);
        assert_eq!(
            desk.release(count),
            [Did::Release(Exclusive), Did::Ask(Exclusive, QUEUE)],
            "after {count}"
        );
    }
}

#[test]
fn a_turn_ends_after_the_time_of_the_bound() {
    let time = Duration::from_millis(25);
    let mut desk = Desk::bounded(HandOverBound::new(u32::MAX, time));
    desk.enter(1, Exclusive, WAIT);
    desk.grant();
    desk.enter(2, Exclusive, WAIT);
    desk.enter(3, Exclusive, WAIT);
    desk.pass(time - Duration::from_nanos(1));
    assert_eq!(desk.release(1), [Did::Has(2)]);
    desk.pass(Duration::from_nanos(1));
    assert_eq!(desk.release(2), [Did::Release(Exclusive), Did::Ask(Exclusive, QUEUE)]);
}

#[test]
fn time_without_a_waiter_is_not_held_against_the_next_turn() {
    let mut desk = Desk::held(Exclusive);
    desk.pass(LONG);
    assert_eq!(desk.release(1), [Did::Release(Exclusive)]);
    assert_eq!(desk.enter(2, Exclusive, WAIT), [Did::Ask(Exclusive, FIRST)]);
}

#[test]
fn one_who_polls_does_so_after_the_bound() {
    let mut desk = counted(0);
    desk.enter(1, Exclusive, WAIT);
    desk.grant();
    desk.enter(2, Exclusive, Want::Poll);
    assert_eq!(
        desk.release(1),
        [Did::Release(Exclusive), Did::Ask(Exclusive, Attempt::Poll)]
    );
}

#[test]
fn after_eight_turns_in_a_row_the_process_stays_off_the_key_once() {
    let mut desk = counted(0);
    desk.enter(0, Exclusive, WAIT);
    desk.grant();
    let mut last = 0;
    for round in 0..3 {
        for turn in 1..=8 {
            desk.enter(last + 1, Exclusive, WAIT);
            let attempt = if turn == 8 { STAY_OFF } else { QUEUE };
            assert_eq!(
                desk.release(last),
                [Did::Release(Exclusive), Did::Ask(Exclusive, attempt)],
                "turn {turn} of round {round}"
            );
            last += 1;
            assert_eq!(desk.grant(), [Did::Has(last)]);
        }
    }
}

#[test]
fn a_key_that_went_to_the_server_without_waiters_is_not_in_a_row_with_the_next() {
    let mut desk = counted(0);
    for who in 0..20 {
        assert_eq!(desk.enter(who, Exclusive, WAIT), [Did::Ask(Exclusive, FIRST)]);
        desk.grant();
        assert_eq!(desk.release(who), [Did::Release(Exclusive)]);
    }
}

#[test]
fn a_change_of_mode_keeps_the_clock_of_the_turn() {
    let time = Duration::from_millis(25);
    let mut desk = Desk::bounded(HandOverBound::new(u32::MAX, time));
    desk.enter(1, Exclusive, WAIT);
    desk.grant();
    desk.enter(2, Shared, WAIT);
    desk.enter(3, Exclusive, WAIT);
    desk.pass(time - Duration::from_nanos(1));
    assert_eq!(desk.release(1), [Did::Release(Exclusive), Did::Ask(Shared, FIRST)]);
    assert_eq!(desk.grant(), [Did::Has(2)]);
    desk.pass(Duration::from_nanos(1));
    assert_eq!(desk.release(2), [Did::Release(Shared), Did::Ask(Exclusive, QUEUE)]);
}

#[test]
fn a_change_of_mode_counts_as_a_hand_over() {
    let mut desk = counted(1);
    desk.enter(1, Exclusive, WAIT);
    desk.grant();
    desk.enter(2, Shared, WAIT);
    desk.enter(3, Exclusive, WAIT);
    assert_eq!(desk.release(1), [Did::Release(Exclusive), Did::Ask(Shared, FIRST)]);
    desk.grant();
    assert_eq!(desk.release(2), [Did::Release(Shared), Did::Ask(Exclusive, QUEUE)]);
}

#[test]
fn what_others_held_in_between_is_a_new_turn() {
    let time = Duration::from_millis(25);
    for found_busy in [true, false] {
        let mut desk = Desk::bounded(HandOverBound::new(u32::MAX, time));
        desk.enter(1, Exclusive, WAIT);
        desk.grant();
        // With a turn behind it that the bound has ended, the gate queues at once where it would have tried.
        if !found_busy {
            desk.pass(time);
            desk.enter(2, Exclusive, WAIT);
            assert_eq!(desk.release(1), [Did::Release(Exclusive), Did::Ask(Exclusive, QUEUE)]);
            desk.grant();
        } else {
            desk.enter(2, Exclusive, WAIT);
            desk.release(1);
        }
        desk.enter(3, Shared, WAIT);
        let attempt = if found_busy { FIRST } else { QUEUE };
        assert_eq!(desk.release(2), [Did::Release(Exclusive), Did::Ask(Shared, attempt)]);
        if found_busy {
            assert_eq!(desk.busy(), [Did::Ask(Shared, QUEUE)]);
        }
        desk.pass(LONG);
        assert_eq!(desk.grant(), [Did::Has(3)]);
        assert_eq!(
            desk.enter(4, Shared, WAIT),
            [Did::Has(4)],
            "a new turn has all of its time before it"
        );
    }
}

#[test]
fn a_turn_that_failed_to_go_on_is_not_gone_on_with_later() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.grant();
    desk.enter(2, Shared, WAIT);
    desk.release(1);
    desk.fail(crate::engine::EngineErrorKind::ConnectionLost);
    desk.pass(LONG);
    desk.grant();
    assert_eq!(desk.enter(3, Shared, WAIT), [Did::Has(3)]);
}

#[test]
fn a_wait_that_the_engine_ends_at_its_limit_is_over() {
    let mut desk = Desk::new();
    let until = desk.now().after(Duration::from_secs(1));
    let want = Want::Queue { until };
    desk.enter(1, Exclusive, want);
    let attempt = Attempt::Queue { until, stay_off: false };
    assert_eq!(desk.busy(), [Did::Ask(Exclusive, attempt)]);
    desk.enter(2, Exclusive, WAIT);
    desk.enter(3, Exclusive, want);
    desk.pass(Duration::from_secs(1));
    // Asked for again, they would be denied again, as fast as the engine can answer.
    assert_eq!(
        desk.busy(),
        [Did::Denied(1), Did::Denied(3), Did::Ask(Exclusive, FIRST)]
    );
    assert_eq!(desk.table.counters.abandoned, 2);
    assert_eq!(desk.table.counters.denied, 0);
    desk.leave(2);
    desk.busy();
    assert_eq!(desk.table.len(), 0);
}

#[test]
fn a_wait_that_the_engine_ends_early_goes_on() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.busy();
    assert_eq!(desk.busy(), [Did::Ask(Exclusive, FIRST)]);
    assert_eq!(desk.busy(), [Did::Ask(Exclusive, QUEUE)]);
}

#[test]
fn a_try_after_the_bound_is_one_attempt() {
    let mut desk = Desk::bounded(HandOverBound::new(u32::MAX, Duration::from_millis(25)));
    desk.enter(1, Shared, WAIT);
    desk.grant();
    desk.pass(LONG);
    assert_eq!(desk.enter(2, Shared, Want::Try), [Did::Ask(Shared, Attempt::Probe)]);
    assert_eq!(desk.release(1), [Did::Release(Shared), Did::Ask(Shared, ONCE)]);
    assert_eq!(desk.busy(), [Did::Denied(2)]);
    assert_eq!(desk.table.len(), 0);
}
