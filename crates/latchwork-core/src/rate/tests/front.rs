//! What is asked, what is remembered, and for how long.

use std::time::Duration;

use super::{
    desk::{Desk, asks},
    now, quota,
};
use crate::{
    engine::EngineErrorKind,
    rate::{RateError, RateLimitsOptions},
};

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

#[test]
fn a_denial_is_remembered_until_it_lapses_and_no_longer() {
    let desk = Desk::new(RateLimitsOptions::default());
    let quota = quota(1, SECOND, 3);
    // Of 3 s that fit, 2.5 are used up: one more fits in half a second.
    let check = || desk.rates.check("key", quota, 1);
    let denied = desk.answered(check(), desk.denied(SECOND * 5 / 2)).unwrap();
    assert_eq!(denied.retry_after(), Some(SECOND / 2));
    assert!(!denied.is_remembered());
    desk.hand.advance(SECOND / 2 - NANO);
    let remembered = now(check()).unwrap();
    assert!(remembered.is_remembered() && !remembered.is_allowed());
    assert_eq!(remembered.retry_after(), Some(NANO));
    desk.hand.advance(NANO);
    drop(asks(check()));
    assert_eq!(desk.rates.stats().denials, 0);
}

#[test]
fn a_denial_counts_from_when_the_question_was_sent() {
    let desk = Desk::new(RateLimitsOptions::default());
    let quota = quota(1, SECOND, 1);
    let check = || desk.rates.check("key", quota, 1);
    let answer = desk.denied(SECOND);
    // The answer travels for longer than half of the denial.
    desk.hand.advance(SECOND * 6 / 10);
    assert!(!desk.answered(check(), answer).unwrap().is_allowed());
    assert!(now(check()).unwrap().retry_after().unwrap() <= SECOND * 4 / 10);
    desk.hand.advance(SECOND * 4 / 10);
    drop(asks(check()));
}

#[test]
fn an_allowed_key_is_asked_for_each_time() {
    let desk = Desk::new(RateLimitsOptions::default());
    for _ in 0..10 {
        let check = desk.rates.check("key", quota(1, SECOND, 3), 1);
        assert!(desk.answered(check, desk.allowed()).unwrap().is_allowed());
    }
    assert_eq!((desk.rates.stats().denials, desk.rates.stats().allowed), (0, 10));
}

#[test]
fn a_dear_denial_denies_no_cheap_charge_and_no_other_key_or_quota() {
    let desk = Desk::new(RateLimitsOptions::default());
    let (five, six) = (quota(1, SECOND, 5), quota(1, SECOND, 6));
    let denied = desk.answered(desk.rates.check("key", five, 3), desk.denied(SECOND * 3));
    assert!(!denied.unwrap().is_allowed());
    assert!(now(desk.rates.check("key", five, 4)).unwrap().is_remembered());
    for check in [
        desk.rates.check("key", five, 2),
        desk.rates.check("key", five, 0),
        desk.rates.check("key", six, 3),
        desk.rates.check("other", five, 3),
    ] {
        drop(asks(check));
    }
}

#[test]
fn denials_are_bounded() {
    let desk = Desk::new(RateLimitsOptions::default().with_denials(320));
    for number in 0..5_000 {
        let check = desk.rates.check(("key", number), quota(1, SECOND, 1), 1);
        assert!(!desk.answered(check, desk.denied(SECOND)).unwrap().is_allowed());
        assert!(desk.rates.stats().denials <= 320);
    }
    assert!(desk.rates.stats().denials >= 80);
    let unremembered = Desk::new(RateLimitsOptions::default().with_denials(0));
    for _ in 0..2 {
        let check = unremembered.rates.check("key", quota(1, SECOND, 1), 1);
        assert!(
            !unremembered
                .answered(check, unremembered.denied(SECOND))
                .unwrap()
                .is_allowed()
        );
    }
}

#[test]
fn a_check_that_was_not_polled_asks_nothing_and_one_that_was_dropped_is_not_wanted() {
    let desk = Desk::new(RateLimitsOptions::default());
    let quota = quota(1, SECOND, 1);
    drop(desk.rates.check("key", quota, 1));
    assert_eq!(desk.asked(), 0);
    let check = asks(desk.rates.check("key", quota, 1));
    let request = desk.next();
    assert!(request.reply.is_wanted());
    drop(check);
    assert!(!request.reply.is_wanted());
    request.reply.send(desk.allowed());
}

#[test]
fn what_can_never_be_allowed_is_an_error_that_asks_nothing() {
    let desk = Desk::new(RateLimitsOptions::default());
    let error = now(desk.rates.check("key", quota(1, SECOND, 3), 4)).unwrap_err();
    assert!(
        matches!(error, RateError::CostTooHigh { cost: 4, highest: 3 }),
        "{error:?}"
    );
    assert!(!error.is_outage() && !error.is_retryable());
    let error = now(desk.rates.check("", quota(1, SECOND, 3), 1)).unwrap_err();
    assert!(matches!(error, RateError::Key(_)) && !error.is_outage(), "{error:?}");
    assert_eq!((desk.asked(), desk.rates.stats().failed), (0, 2));
}

#[tokio::test]
async fn closed_is_closed() {
    let rates = crate::rate::RateLimits::in_memory();
    rates.close().await;
    let error = rates.check("key", quota(1, SECOND, 1), 1).await.unwrap_err();
    assert!(matches!(error, RateError::Closed) && error.is_outage(), "{error:?}");
    assert!(!rates.stats().is_outage);
}

#[test]
fn namespaces_keep_names_apart() {
    let rates = crate::rate::RateLimits::in_memory();
    let shop = rates.with_namespace(crate::Namespace::new("shop").unwrap());
    let quota = quota(1, SECOND, 1);
    assert!(now(rates.check("key", quota, 1)).unwrap().is_allowed());
    assert!(now(shop.check("key", quota, 1)).unwrap().is_allowed());
    assert!(!now(shop.check("key", quota, 1)).unwrap().is_allowed());
    assert!(matches!(
        RateError::from_engine(&crate::engine::EngineError::new(EngineErrorKind::Refused)),
        RateError::Unavailable { .. }
    ));
}
