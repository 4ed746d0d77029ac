use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    Guard, HoldState, Locks, Permit, ReleaseError,
    engine::{Attempt, EngineError, EngineErrorKind},
    testing::{Polled, ScriptedEngine, poll},
};

fn held(engine: &ScriptedEngine, locks: &Locks) -> Guard {
    let mut attempt = poll(locks.try_acquire("job"));
    engine.grant(engine.asked(Attempt::Once { patient: false }));
    attempt.ready().unwrap().unwrap()
}

fn held_slot(engine: &ScriptedEngine, locks: &Locks) -> Permit {
    let pool = locks.slots("pool", 1).unwrap();
    let mut attempt = poll(pool.try_acquire());
    let request = engine.asked_for_slots();
    assert_eq!(request.reply.candidates().want, 1);
    request.reply.send(Ok(vec![(0, engine.a_grant())]));
    attempt.ready().unwrap().unwrap()
}

#[tokio::test]
async fn a_release_tells_what_the_server_said() {
    let (engine, locks, _) = ScriptedEngine::new();

    let mut release = poll(held(&engine, &locks).release());
    engine.released().reply.send(Ok(true));
    release.ready().unwrap();

    let mut release = poll(held(&engine, &locks).release());
    engine.released().reply.send(Ok(false));
    assert!(matches!(release.ready(), Err(ReleaseError::Lost { .. })));

    let mut release = poll(held(&engine, &locks).release());
    let cause: Box<dyn std::error::Error + Send + Sync> = "the cause".into();
    let error = EngineError::with_source(EngineErrorKind::ConnectionLost, cause);
    engine.released().reply.send(Err(error));
    match release.ready() {
        Err(ReleaseError::Unconfirmed {
            source: Some(source), ..
        }) => assert_eq!(source.to_string(), "the cause"),
        other => panic!("{other:?}"),
    }

    let mut release = poll(held(&engine, &locks).release());
    drop(engine.released());
    assert!(matches!(release.ready(), Err(ReleaseError::Unconfirmed { .. })));
}

#[tokio::test]
async fn a_release_of_a_slot_tells_what_the_server_said() {
    let (engine, locks, _) = ScriptedEngine::new();

    let mut release = poll(held_slot(&engine, &locks).release());
    engine.released().reply.send(Ok(true));
    release.ready().unwrap();

    let mut release = poll(held_slot(&engine, &locks).release());
    drop(engine.released());
    assert!(matches!(release.ready(), Err(ReleaseError::Unconfirmed { .. })));

    let permit = held_slot(&engine, &locks);
    engine.lose_session();
    let mut release = Polled::new(permit.release());
    assert!(matches!(release.ready(), Err(ReleaseError::Lost { .. })));
    assert!(engine.has_nothing_to_do(), "there is nothing to give back");
}

#[tokio::test]
async fn a_release_happens_whether_or_not_it_is_awaited() {
    let (engine, locks, _) = ScriptedEngine::new();
    drop(held(&engine, &locks).release());
    engine.released().reply.send(Ok(true));
    drop(held_slot(&engine, &locks).release());
    engine.released().reply.send(Ok(true));
    assert!(engine.has_nothing_to_do(), "and only once");
}

#[tokio::test]
async fn a_guard_that_is_dropped_is_released_without_a_question() {
    let (engine, locks, _) = ScriptedEngine::new();
    drop(held(&engine, &locks));
    assert!(!engine.released().reply.is_wanted());
    drop(held_slot(&engine, &locks));
    assert!(!engine.released().reply.is_wanted());
}

#[tokio::test]
async fn a_release_that_hands_over_needs_no_word_to_the_server() {
    let (engine, locks, _) = ScriptedEngine::new();
    let first = held(&engine, &locks);
    let mut next = poll(locks.acquire("job").without_limit());
    Polled::new(first.release()).ready().unwrap();
    next.ready().unwrap().leak();
    assert!(engine.has_nothing_to_do());
    assert_eq!(locks.stats().handed_over, 1);
}

#[tokio::test]
async fn a_leaked_guard_stays_held() {
    let (engine, locks, _) = ScriptedEngine::new();
    held(&engine, &locks).leak();
    held_slot(&engine, &locks).leak();
    assert!(engine.has_nothing_to_do());
    assert_eq!(locks.stats().holders, 2);
    assert!(Polled::new(locks.try_acquire("job")).ready().unwrap().is_none());
    // Asked for once more, the session that holds the slot would be granted it.
    let pool = locks.slots("pool", 1).unwrap();
    assert!(Polled::new(pool.try_acquire()).ready().unwrap().is_none());
    assert_eq!(locks.stats().holders, 2);

    engine.lose_session();
    assert_eq!(locks.stats().holders, 0);
    drop(pool);
    held_slot(&engine, &locks).leak();
    drop(held(&engine, &locks));
}

#[tokio::test]
async fn a_lost_guard_says_so_and_its_release_sends_nothing() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    let mut lost = poll(guard.lost());
    let also = guard.lost();
    assert!(guard.is_held());
    engine.lose_session();
    assert_eq!((guard.is_held(), guard.state()), (false, HoldState::Lost));
    lost.ready();
    Polled::new(also).ready();
    let mut release = Polled::new(guard.release());
    assert!(matches!(release.ready(), Err(ReleaseError::Lost { .. })));
    assert!(engine.has_nothing_to_do());
}

#[tokio::test]
async fn a_guard_in_doubt_is_not_held_and_not_lost() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    let mut lost = poll(guard.lost());
    engine.session().suspend();
    assert_eq!((guard.is_held(), guard.state()), (false, HoldState::Suspended));
    assert!(lost.is_pending());
    engine.session().trust_until(crate::Moment::NEVER);
    assert!(guard.is_held());
}

#[tokio::test]
async fn trust_ends_with_the_clock_although_nobody_says_a_word() {
    let (engine, locks, hand) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    engine
        .session()
        .trust_until(crate::Moment::default().after(Duration::from_secs(5)));
    hand.advance(Duration::from_secs(5) - Duration::from_nanos(1));
    assert!(guard.is_held());
    hand.advance(Duration::from_nanos(1));
    assert!(!guard.is_held());
}

/// Tells when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn work_under_a_guard_is_cancelled_when_the_guard_is_lost() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    let cancelled = Arc::new(AtomicBool::new(false));
    let dropped = Dropped(Arc::clone(&cancelled));
    let mut work = poll(guard.run(async move {
        let _dropped = dropped;
        std::future::pending::<()>().await;
    }));
    engine.lose_session();
    assert_eq!(work.ready().unwrap_err().key, guard.key());
    assert!(
        cancelled.load(Ordering::SeqCst),
        "the work is gone when the loss is told"
    );
}

#[tokio::test]
async fn work_under_a_guard_runs_to_its_end_and_leaves_the_key_held() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    assert!(guard.is_held() && engine.has_nothing_to_do());

    let permit = held_slot(&engine, &locks);
    assert_eq!(permit.run(async { 7 }).await.unwrap(), 7);
    assert!(permit.is_held() && engine.has_nothing_to_do());
}

#[tokio::test]
async fn work_under_a_lost_guard_is_not_begun() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    engine.lose_session();
    let mut begun = false;
    assert!(guard.run(async { begun = true }).await.is_err());
    assert!(!begun);
}
