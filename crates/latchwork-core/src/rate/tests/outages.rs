//! What becomes of checks when the engine can't be asked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

use super::{
    desk::{Desk, asks, failed},
    quota,
};
use crate::{
    engine::EngineErrorKind,
    rate::{OnOutage, RateError, RateLimitsOptions},
};

const SECOND: Duration = Duration::from_secs(1);

const OUTAGES: [EngineErrorKind; 5] = [
    EngineErrorKind::Unavailable,
    EngineErrorKind::ConnectionLost,
    EngineErrorKind::Refused,
    EngineErrorKind::CapacityExceeded,
    EngineErrorKind::Failed,
];

/// Counts warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "latchwork::core"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() == Level::WARN {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn open_this_process_keeps_to_the_quota_alone_and_says_so() {
    for kind in OUTAGES {
        let desk = Desk::new(RateLimitsOptions::default());
        let quota = quota(1, SECOND, 3);
        let check = || desk.rates.check("key", quota, 1);
        for left in [2, 1, 0] {
            let decision = desk.answered(check(), failed(kind)).unwrap();
            assert!(decision.is_degraded() && decision.is_allowed());
            assert_eq!(decision.remaining(), left);
        }
        let denied = desk.answered(check(), failed(kind)).unwrap();
        assert!(denied.is_degraded() && !denied.is_allowed());
        assert_eq!(denied.retry_after(), Some(SECOND));
        desk.hand.advance(SECOND);
        assert!(desk.answered(check(), failed(kind)).unwrap().is_allowed());
        let stats = desk.rates.stats();
        assert_eq!((stats.degraded, stats.outages, stats.local_rows), (5, 1, 1));
        assert!(stats.is_outage);
    }
}

#[test]
fn closed_it_is_an_outage_and_never_a_denial() {
    for kind in OUTAGES {
        let desk = Desk::new(RateLimitsOptions::default().with_on_outage(OnOutage::Closed));
        let error = desk
            .answered(desk.rates.check("key", quota(1, SECOND, 3), 1), failed(kind))
            .unwrap_err();
        assert!(error.is_outage() && error.is_retryable(), "{error:?}");
        let stats = desk.rates.stats();
        assert_eq!(
            (stats.failed, stats.degraded, stats.denied, stats.local_rows),
            (1, 0, 0, 0)
        );
    }
}

#[test]
fn a_database_that_is_not_set_up_is_an_error_even_when_open() {
    let desk = Desk::new(RateLimitsOptions::default());
    let check = desk.rates.check("key", quota(1, SECOND, 3), 1);
    let error = desk.answered(check, failed(EngineErrorKind::Setup)).unwrap_err();
    assert!(
        matches!(error, RateError::Setup { .. }) && !error.is_retryable(),
        "{error:?}"
    );
    assert_eq!(desk.rates.stats().outages, 0);
}

#[test]
fn a_request_that_nobody_answers_is_an_outage() {
    let desk = Desk::new(RateLimitsOptions::default());
    let mut check = asks(desk.rates.check("key", quota(1, SECOND, 3), 1));
    drop(desk.next());
    assert!(check.ready().unwrap().is_degraded());
}

#[test]
fn each_outage_is_logged_and_counted_once() {
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        let desk = Desk::new(RateLimitsOptions::default());
        let check = || desk.rates.check("key", quota(1, SECOND, 100), 1);
        for outage in 1..=3 {
            for _ in 0..5 {
                let decision = desk.answered(check(), failed(EngineErrorKind::Unavailable)).unwrap();
                assert!(decision.is_degraded());
            }
            assert_eq!(desk.rates.stats().outages, outage);
            assert_eq!(warnings.0.load(Ordering::Relaxed) as u64, outage);
            let decision = desk.answered(check(), desk.allowed()).unwrap();
            assert!(!decision.is_degraded() && !desk.rates.stats().is_outage);
        }
    });
}

#[test]
fn what_this_process_keeps_for_itself_is_bounded_and_keeps_those_who_matter() {
    let desk = Desk::new(RateLimitsOptions::default().with_local_rows(3_200));
    let slow = quota(1, SECOND * 3_600, 1);
    let quick = quota(1_000, SECOND, 1);
    let alone = |key: u32, quota| {
        desk.answered(
            desk.rates.check(("key", key), quota, 1),
            failed(EngineErrorKind::Failed),
        )
    };
    for key in 0..100 {
        assert!(alone(key, slow).unwrap().is_allowed());
    }
    for key in 0..20_000 {
        assert!(alone(key, quick).unwrap().is_allowed());
        desk.hand.advance(SECOND / 1_000);
        assert!(desk.rates.stats().local_rows <= 3_200);
    }
    // Their quota has not come back, and the many others have ceased to matter.
    for key in 0..100 {
        assert!(!alone(key, slow).unwrap().is_allowed());
    }
}
