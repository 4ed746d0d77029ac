use std::time::Duration;

use crate::{
    AcquireError, Moment, WaitMethod,
    engine::{Attempt, EngineError, EngineErrorKind},
    mode::Mode,
    testing::{Polled, ScriptedEngine, poll},
};

const ONCE: Attempt = Attempt::Once { patient: false };
const FIRST: Attempt = Attempt::Once { patient: true };
const QUEUE: Attempt = Attempt::Queue {
    until: Moment::NEVER,
    stay_off: false,
};
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn nothing_is_asked_before_the_first_poll() {
    let (engine, locks, _) = ScriptedEngine::new();
    drop(locks.acquire("job").within(SECOND));
    drop(locks.acquire("job").without_limit());
    drop(locks.try_acquire("job"));
    drop(locks.slots("pool", 3).unwrap().acquire().within(SECOND));
    assert!(engine.has_nothing_to_do());
    assert_eq!(locks.stats().keys, 0);
}

#[tokio::test]
async fn a_limit_of_zero_is_one_attempt() {
    let (engine, locks, _) = ScriptedEngine::new();
    for method in [WaitMethod::Queue, WaitMethod::Poll] {
        let mut acquire = poll(locks.acquire("job").wait_by(method).within(Duration::ZERO));
        engine.asked(ONCE).reply.send(Ok(None));
        match acquire.ready() {
            Err(AcquireError::TimedOut { limit, .. }) => assert_eq!(limit, Duration::ZERO),
            other => panic!("{other:?}"),
        }
        assert!(engine.has_nothing_to_do());

        let mut acquire = poll(locks.acquire("job").wait_by(method).within(Duration::ZERO));
        engine.grant(engine.asked(ONCE));
        acquire.ready().unwrap().leak();
        engine.lose_session();
    }
}

#[tokio::test]
async fn a_limit_runs_from_the_first_poll() {
    let (engine, locks, hand) = ScriptedEngine::new();
    let acquire = locks.acquire("job").within(SECOND);
    hand.advance(10 * SECOND);
    let mut acquire = Polled::new(acquire);
    assert!(acquire.is_pending());
    hand.advance(SECOND / 4);
    assert!(acquire.is_pending());
    engine.asked(FIRST).reply.send(Ok(None));
    engine.asked(Attempt::Queue {
        until: Moment::default().after(11 * SECOND),
        stay_off: false,
    });
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_runs_out_ends_the_wait() {
    for limit in [Duration::from_nanos(1), Duration::from_micros(300), SECOND] {
        let (engine, locks, _) = ScriptedEngine::new();
        let acquire = tokio::spawn(locks.acquire("job").without_limit());
        tokio::task::yield_now().await;
        engine.asked(FIRST).reply.send(Ok(None));
        let _wait = engine.asked(QUEUE);
        acquire.abort();
        assert!(acquire.await.unwrap_err().is_cancelled());
        engine.abandoned();

        let before = tokio::time::Instant::now();
        let error = locks.acquire("other").within(limit).await.unwrap_err();
        assert!(
            error.is_timeout() && error.is_retryable() && !error.is_outage(),
            "{error}"
        );
        assert!(before.elapsed() >= limit);
        assert!(
            before.elapsed() <= limit + Duration::from_millis(2),
            "{:?}",
            before.elapsed()
        );
        // Its attempt was on the way; what it is granted goes back.
        engine.grant(engine.asked(FIRST));
        engine.released();
        assert!(engine.has_nothing_to_do());
    }
}

#[tokio::test]
async fn a_wait_that_the_engine_ends_at_its_limit_has_timed_out() {
    let (engine, locks, hand) = ScriptedEngine::new();
    let mut acquire = poll(locks.acquire("job").within(SECOND));
    engine.asked(FIRST).reply.send(Ok(None));
    let wait = engine.asked_at_all();
    hand.advance(SECOND);
    wait.reply.send(Ok(None));
    assert!(acquire.ready().unwrap_err().is_timeout());
    assert!(engine.has_nothing_to_do());
    assert_eq!(locks.stats().keys, 0);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_runs_out_in_an_outage_is_told_as_the_outage() {
    let kinds = [
        EngineErrorKind::Unavailable,
        EngineErrorKind::Refused,
        EngineErrorKind::Closed,
    ];
    for kind in kinds {
        let (engine, locks, _) = ScriptedEngine::new();
        engine.break_down(kind);
        let error = locks.acquire("job").within(SECOND).await.unwrap_err();
        assert!(error.is_outage() && !error.is_timeout(), "{error:?}");
        let pool = locks.slots("pool", 2).unwrap();
        let error = pool.acquire().within(SECOND).await.unwrap_err();
        assert!(error.is_outage() && !error.is_timeout(), "{error:?}");
    }
}

#[tokio::test]
async fn a_try_behind_one_who_waits_for_the_end_of_an_outage_does_not_wait_for_it() {
    let (engine, locks, _) = ScriptedEngine::new();
    let mut patient = poll(locks.acquire("job").without_limit());
    engine.break_down(EngineErrorKind::Unavailable);
    let error = Polled::new(locks.try_acquire("job")).ready().unwrap_err();
    assert!(matches!(error, AcquireError::Unavailable { .. }), "{error:?}");
    engine.grant(engine.asked(FIRST));
    patient.ready().unwrap().leak();
    assert_eq!(locks.stats().holders, 1);
}

#[tokio::test]
async fn a_try_that_the_server_does_not_answer_is_told_so() {
    let (engine, locks, _) = ScriptedEngine::new();
    let mut attempt = poll(locks.try_acquire("job"));
    let pool = locks.slots("pool", 1).unwrap();
    let mut permit = poll(pool.try_acquire());
    engine.fall_silent(EngineErrorKind::Unavailable);
    assert!(attempt.ready().unwrap_err().is_outage());
    assert!(permit.ready().unwrap_err().is_outage());
    // The answers come at last.
    engine.grant(engine.asked(ONCE));
    engine.released();
    let slots = engine.asked_for_slots();
    assert_eq!(slots.reply.candidates().want, 0);
}

#[tokio::test]
async fn a_request_that_is_dropped_unanswered_has_lost_its_connection() {
    let (engine, locks, _) = ScriptedEngine::new();
    let mut attempt = poll(locks.try_acquire("job"));
    drop(engine.asked(ONCE));
    let error = attempt.ready().unwrap_err();
    assert!(matches!(error, AcquireError::ConnectionLost { .. }), "{error:?}");

    let mut patient = poll(locks.acquire("job").without_limit());
    drop(engine.asked(FIRST));
    engine.asked(FIRST).reply.send(Ok(None));
    drop(engine.asked(QUEUE));
    engine.grant(engine.asked(FIRST));
    patient.ready().unwrap().leak();

    let pool = locks.slots("pool", 1).unwrap();
    let mut permit = poll(pool.try_acquire());
    drop(engine.asked_for_slots());
    let error = permit.ready().unwrap_err();
    assert!(matches!(error, AcquireError::ConnectionLost { .. }), "{error:?}");
}

#[tokio::test]
async fn every_kind_of_error_reaches_the_caller_with_its_cause() {
    for kind in [
        EngineErrorKind::Unavailable,
        EngineErrorKind::ConnectionLost,
        EngineErrorKind::Refused,
        EngineErrorKind::CapacityExceeded,
        EngineErrorKind::Closed,
        EngineErrorKind::Failed,
    ] {
        let (engine, locks, _) = ScriptedEngine::new();
        let mut attempt = poll(locks.try_acquire("job"));
        let cause: Box<dyn std::error::Error + Send + Sync> = "the cause".into();
        engine
            .asked(ONCE)
            .reply
            .send(Err(EngineError::with_source(kind, cause)));
        let error = attempt.ready().unwrap_err();
        let expected = match &error {
            AcquireError::Unavailable { .. } => EngineErrorKind::Unavailable,
            AcquireError::ConnectionLost { .. } => EngineErrorKind::ConnectionLost,
            AcquireError::Refused { .. } => EngineErrorKind::Refused,
            AcquireError::CapacityExceeded { .. } => EngineErrorKind::CapacityExceeded,
            AcquireError::Closed => EngineErrorKind::Closed,
            AcquireError::Backend { .. } => EngineErrorKind::Failed,
            other => panic!("{other:?}"),
        };
        assert_eq!(kind, expected);
        assert!(!error.is_timeout());
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let told = (kind != EngineErrorKind::Closed).then(|| "the cause".to_owned());
        assert_eq!(source, told);
        assert!(
            !error.to_string().contains("the cause"),
            "a message does not repeat its source"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn one_who_waits_to_share_a_key_that_is_held_here_looks_again() {
    let (engine, locks, hand) = ScriptedEngine::new();
    let mut first = poll(locks.acquire("job").shared().without_limit());
    engine.grant(engine.asked(FIRST));
    let first = first.ready().unwrap();
    hand.advance(SECOND);

    let second = tokio::spawn(locks.acquire("job").shared().without_limit());
    let before = tokio::time::Instant::now();
    for _ in 0..4 {
        tokio::task::yield_now().await;
        // Somebody queues elsewhere.
        engine.asked(Attempt::Probe).reply.send(Ok(None));
        tokio::time::sleep(SECOND / 4).await;
    }
    tokio::task::yield_now().await;
    engine.grant(engine.asked(Attempt::Probe));
    let second = second.await.unwrap().unwrap();
    assert!(before.elapsed() <= 2 * SECOND, "{:?}", before.elapsed());
    assert!(first.is_held() && second.is_held());
    assert_eq!(locks.stats().holders, 2);
}

/// What stands between a first poll and a guard, and the answers that lead there.
const STATES: usize = 5;

/// Leads an acquire to one of its states and drops it there; then the engine answers everything that it was asked.
fn dropped_in_state(state: usize, mode: Mode) {
    let (engine, locks, _) = ScriptedEngine::new();
    let mut acquire = Polled::new(locks.acquire("job").mode(mode).without_limit());
    let mut wait = None;
    if state >= 1 {
        assert!(acquire.is_pending());
    }
    if state >= 2 {
        engine.asked(FIRST).reply.send(Ok(None));
        let request = engine.asked(QUEUE);
        assert!(acquire.is_pending());
        wait = Some(request);
    }
    if state >= 3 {
        // Granted, and the guard was not fetched.
        engine.grant(wait.take().unwrap());
    }
    if state >= 4 {
        drop(acquire.ready().unwrap());
    }
    drop(acquire);

    match (state, wait) {
        (0, _) => {}
        (1, _) => {
            engine.grant(engine.asked(FIRST));
            engine.released();
        }
        (2, Some(wait)) => {
            assert_eq!(engine.abandoned(), (wait.key, wait.flight()));
            engine.grant(wait);
            engine.released();
        }
        _ => drop(engine.released()),
    }
    assert!(engine.has_nothing_to_do(), "state {state}");
    assert_eq!((locks.stats().keys, locks.stats().holders), (0, 0), "state {state}");
}

#[tokio::test]
async fn an_acquire_that_is_dropped_in_any_state_leaves_nothing_held() {
    for state in 0..STATES {
        dropped_in_state(state, Mode::Exclusive);
        dropped_in_state(state, Mode::Shared);
    }
}

#[tokio::test]
async fn an_acquire_of_a_slot_that_is_dropped_in_any_state_leaves_nothing_held() {
    for state in 0..STATES {
        let (engine, locks, _) = ScriptedEngine::new();
        let pool = locks.slots("pool", 1).unwrap();
        let mut acquire = Polled::new(pool.acquire().without_limit());
        let mut requests = Vec::new();
        if state >= 1 {
            assert!(acquire.is_pending());
            requests = vec![engine.asked_for_slots(), engine.asked_for_slots()];
            assert!(!requests[0].later && requests[1].later);
        }
        if state >= 2 {
            assert_eq!(requests[0].reply.candidates().want, 1);
        }
        if state >= 3 {
            requests.remove(0).reply.send(Ok(vec![(0, engine.a_grant())]));
        }
        if state >= 4 {
            drop(acquire.ready().unwrap());
        }
        drop(acquire);
        for request in requests {
            let asked = state == 2 && !request.later;
            let want = if asked { 1 } else { request.reply.candidates().want };
            assert_eq!(want, usize::from(asked));
            let granted = if asked { vec![(0, engine.a_grant())] } else { Vec::new() };
            request.reply.send(Ok(granted));
        }
        if state >= 2 {
            drop(engine.released());
        }
        assert!(engine.has_nothing_to_do(), "state {state}");
        assert_eq!(locks.stats().holders, 0, "state {state}");
    }
}
