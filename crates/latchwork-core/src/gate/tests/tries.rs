use super::desk::{Desk, Did, FIRST, ONCE, QUEUE, WAIT};
use crate::{
    engine::EngineErrorKind,
    gate::Want,
    mode::Mode::{Exclusive, Shared},
};

#[test]
fn a_try_asks_the_engine_once_and_a_denied_one_leaves_nothing_behind() {
    let mut desk = Desk::new();
    assert_eq!(desk.enter(1, Exclusive, Want::Try), [Did::Ask(Exclusive, ONCE)]);
    assert_eq!(desk.busy(), [Did::Denied(1)]);
    assert_eq!(desk.table.len(), 0);
    assert_eq!(desk.table.counters.denied, 1);
}

#[test]
fn tries_on_one_key_share_one_attempt_and_the_first_is_served() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, Want::Try);
    assert_eq!(desk.enter(2, Exclusive, Want::Try), []);
    assert_eq!(desk.enter(3, Shared, Want::Try), []);
    assert_eq!(desk.grant(), [Did::Has(1), Did::Denied(2), Did::Denied(3)]);
    assert_eq!(desk.table.holders(), 1);
}

#[test]
fn shared_tries_are_served_together() {
    let mut desk = Desk::new();
    desk.enter(1, Shared, Want::Try);
    desk.enter(2, Shared, Want::Try);
    assert_eq!(desk.grant(), [Did::Has(1), Did::Has(2)]);
    assert_eq!(desk.table.holders(), 2);
}

#[test]
fn all_who_joined_an_attempt_get_its_denial() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, Want::Try);
    desk.enter(2, Exclusive, Want::Try);
    assert_eq!(desk.busy(), [Did::Denied(1), Did::Denied(2)]);
    assert_eq!(desk.table.len(), 0);
}

#[test]
fn a_shared_try_has_its_own_attempt_where_an_exclusive_one_was_denied() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, Want::Try);
    desk.enter(2, Shared, Want::Try);
    assert_eq!(desk.busy(), [Did::Denied(1), Did::Ask(Shared, ONCE)]);
    assert_eq!(desk.grant(), [Did::Has(2)]);
}

#[test]
fn what_is_denied_to_a_shared_try_is_denied_to_an_exclusive_one() {
    let mut desk = Desk::new();
    desk.enter(1, Shared, Want::Try);
    desk.enter(2, Exclusive, Want::Try);
    assert_eq!(desk.busy(), [Did::Denied(1), Did::Denied(2)]);
}

#[test]
fn a_try_behind_one_who_waits_shares_the_attempt_but_not_the_wait() {
    let mut desk = Desk::new();
    assert_eq!(desk.enter(1, Exclusive, WAIT), [Did::Ask(Exclusive, FIRST)]);
    desk.enter(2, Exclusive, Want::Try);
    desk.enter(3, Shared, Want::Try);
    assert_eq!(
        desk.busy(),
        [Did::Denied(2), Did::Denied(3), Did::Ask(Exclusive, QUEUE)]
    );
}

#[test]
fn a_shared_try_behind_a_shared_wait_joins_its_attempt_after_an_exclusive_one_was_denied() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, Want::Try);
    desk.enter(2, Shared, WAIT);
    desk.enter(3, Shared, Want::Try);
    // Others may well hold the key shared, so nothing is known yet of those who would share it.
    assert_eq!(desk.busy(), [Did::Denied(1), Did::Ask(Shared, FIRST)]);
    assert_eq!(desk.grant(), [Did::Has(2), Did::Has(3)]);
}

#[test]
fn a_shared_try_does_not_overtake_an_exclusive_wait() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, Want::Try);
    desk.enter(2, Shared, WAIT);
    desk.enter(3, Exclusive, WAIT);
    desk.enter(4, Shared, Want::Try);
    assert_eq!(desk.busy(), [Did::Denied(1), Did::Ask(Shared, FIRST)]);
    assert_eq!(desk.grant(), [Did::Has(2), Did::Denied(4)]);
}

#[test]
fn a_try_is_denied_at_once_while_the_engine_waits_for_the_key() {
    for want in [WAIT, Want::Poll] {
        let mut desk = Desk::new();
        desk.enter(1, Exclusive, want);
        desk.busy();
        assert_eq!(desk.enter(2, Exclusive, Want::Try), [Did::Denied(2)]);
        assert_eq!(desk.enter(3, Shared, Want::Try), [Did::Denied(3)]);
    }
}

#[test]
fn a_try_is_denied_at_once_while_the_key_is_held_here() {
    let mut desk = Desk::held(Exclusive);
    assert_eq!(desk.enter(2, Exclusive, Want::Try), [Did::Denied(2)]);
    assert_eq!(desk.enter(3, Shared, Want::Try), [Did::Denied(3)]);

    let mut desk = Desk::held(Shared);
    assert_eq!(desk.enter(2, Exclusive, Want::Try), [Did::Denied(2)]);
}

#[test]
fn a_shared_try_is_denied_while_an_exclusive_one_waits_behind_the_shared_hold() {
    let mut desk = Desk::held(Shared);
    desk.enter(2, Exclusive, WAIT);
    assert_eq!(desk.enter(3, Shared, Want::Try), [Did::Denied(3)]);
}

#[test]
fn a_try_waits_for_the_answer_to_an_abandoned_wait() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.busy();
    assert_eq!(desk.leave(1), [Did::Abandon]);
    assert_eq!(desk.enter(2, Exclusive, Want::Try), []);
    assert_eq!(desk.busy(), [Did::Ask(Exclusive, ONCE)]);
    assert_eq!(desk.busy(), [Did::Denied(2)]);
    assert_eq!(desk.table.len(), 0);
}

#[test]
fn a_try_takes_what_an_abandoned_wait_was_granted() {
    let mut desk = Desk::new();
    desk.enter(1, Exclusive, WAIT);
    desk.busy();
    desk.leave(1);
    desk.enter(2, Exclusive, Want::Try);
    assert_eq!(desk.grant(), [Did::Has(2)]);
}

#[test]
fn a_try_waits_for_an_unordered_release() {
    let mut desk = Desk::unordered();
    desk.enter(1, Exclusive, WAIT);
    desk.grant();
    assert_eq!(desk.release(1), [Did::Release(Exclusive)]);
    assert_eq!(desk.enter(2, Exclusive, Want::Try), []);
    assert_eq!(desk.settle(), [Did::Ask(Exclusive, ONCE)]);
    assert_eq!(desk.grant(), [Did::Has(2)]);
}

#[test]
fn a_try_behind_a_hold_in_doubt_is_told_of_the_outage_and_not_that_the_key_is_busy() {
    for held in [Exclusive, Shared] {
        for wanted in [Exclusive, Shared] {
            let mut desk = Desk::held(held);
            desk.session.suspend();
            assert_eq!(
                desk.enter(2, wanted, Want::Try),
                [Did::Failed(2, EngineErrorKind::Unavailable)]
            );
            assert_eq!(desk.table.counters.failed, 1);
        }
    }
}
