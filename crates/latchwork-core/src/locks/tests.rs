mod order;

use std::{sync::Arc, time::Duration};

use crate::{
    Acquire, AcquireBuilder, AcquireError, Guard, HoldState, Locks, Moment, Permit, Slots, Stats, TryAcquire,
    engine::{Attempt, EngineError, EngineErrorKind},
    gate::Want,
    memory::MemoryServer,
    slots::{AcquirePermit, PermitBuilder, TryAcquirePermit},
    testing::{Polled, ScriptedEngine, poll},
};

const ONCE: Attempt = Attempt::Once { patient: false };
const FIRST: Attempt = Attempt::Once { patient: true };
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn everything_can_be_sent_to_and_shared_with_other_threads() {
    const fn is<T: Send + Sync + 'static>() {}
    is::<Locks>();
    is::<Slots>();
    is::<Guard>();
    is::<Permit>();
    is::<Acquire>();
    is::<TryAcquire>();
    is::<AcquireBuilder>();
    is::<AcquirePermit>();
    is::<TryAcquirePermit>();
    is::<PermitBuilder>();
    is::<MemoryServer>();
    is::<AcquireError>();
}

#[tokio::test]
async fn the_futures_can_be_sent_to_other_threads() {
    fn moves<T: Send>(future: T) -> T {
        future
    }

    let locks = Locks::in_memory();
    let guard = moves(locks.try_acquire("job")).await.unwrap().unwrap();
    moves(guard.run(async {})).await.unwrap();
    drop(moves(guard.lost()));
    moves(guard.release()).await.unwrap();
    let permit = locks.slots("pool", 1).unwrap().try_acquire().await.unwrap().unwrap();
    moves(permit.run(async {})).await.unwrap();
    drop(moves(permit.lost()));
    moves(permit.release()).await.unwrap();
    moves(locks.close_within(SECOND)).await.unwrap();
    moves(locks.close()).await;
}

fn held(engine: &ScriptedEngine, locks: &Locks) -> Guard {
    let mut attempt = poll(locks.try_acquire("job"));
    engine.grant(engine.asked(ONCE));
    attempt.ready().unwrap().unwrap()
}

#[tokio::test]
async fn closing_waits_for_every_guard_and_permit_and_then_ends_the_engine() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    let pool = locks.slots("pool", 1).unwrap();
    let mut attempt = poll(pool.try_acquire());
    let request = engine.asked_for_slots();
    request.reply.candidates();
    request.reply.send(Ok(vec![(0, engine.a_grant())]));
    let permit = attempt.ready().unwrap().unwrap();

    let mut close = poll(locks.close());
    assert!(engine.has_nothing_to_do());
    drop(guard);
    engine.released();
    assert!(close.is_pending());
    drop(permit);
    engine.released();
    assert!(close.is_pending());
    engine.closed().send(()).unwrap();
    close.ready();
}

#[tokio::test]
async fn closing_refuses_whoever_comes_and_whoever_waits() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    let mut waits = poll(locks.acquire("job").without_limit());
    let mut asks = poll(locks.acquire("other").without_limit());
    let pool = locks.slots("pool", 1).unwrap();
    let mut permit = poll(pool.acquire().without_limit());

    let mut close = poll(locks.close());
    assert!(matches!(waits.ready(), Err(AcquireError::Closed)));
    assert!(matches!(asks.ready(), Err(AcquireError::Closed)));
    assert!(matches!(permit.ready(), Err(AcquireError::Closed)));
    let clone = locks.clone();
    assert!(matches!(
        Polled::new(clone.try_acquire("new")).ready(),
        Err(AcquireError::Closed)
    ));
    assert!(matches!(
        Polled::new(pool.try_acquire()).ready(),
        Err(AcquireError::Closed)
    ));
    let new = locks.slots("new", 1).unwrap();
    assert!(matches!(
        Polled::new(new.acquire().without_limit()).ready(),
        Err(AcquireError::Closed)
    ));

    // What was on the way goes back.
    engine.grant(engine.asked(FIRST));
    engine.released();
    assert!(guard.is_held(), "closing takes nothing away");
    drop(guard);
    engine.released();
    assert!(close.is_pending());
    engine.closed();
    assert!(engine.asked_for_slots().reply.candidates().keys.is_empty());
    close.ready();
}

#[tokio::test]
async fn closing_waits_for_releases_that_are_not_ordered() {
    let (engine, locks, _) = ScriptedEngine::new();
    engine.grant_unordered();
    drop(held(&engine, &locks));
    let release = engine.released();
    let mut close = poll(locks.close());
    assert!(engine.has_nothing_to_do(), "the session of the release may not end yet");
    release.reply.send(Ok(true));
    assert!(close.is_pending());
    engine.closed();
    close.ready();
}

#[tokio::test]
async fn a_close_that_was_dropped_can_be_called_again() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    drop(poll(locks.close()));
    assert!(matches!(
        Polled::new(locks.try_acquire("new")).ready(),
        Err(AcquireError::Closed)
    ));
    let mut close = poll(locks.close());
    drop(guard);
    engine.released();
    assert!(close.is_pending());
    engine.closed();
    close.ready();
}

#[tokio::test]
async fn the_loss_of_the_last_guard_lets_the_close_go_on() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    let mut close = poll(locks.close());
    engine.lose_session();
    assert!(close.is_pending());
    engine.closed();
    close.ready();
    drop(guard);
    assert!(engine.has_nothing_to_do());
}

#[tokio::test(start_paused = true)]
async fn closing_within_a_limit_tells_how_many_were_left_and_ends_the_engine_all_the_same() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    let close = tokio::spawn({
        let locks = locks.clone();
        async move { locks.close_within(SECOND).await }
    });
    tokio::time::sleep(2 * SECOND).await;
    engine.closed();
    let error = close.await.unwrap().unwrap_err();
    assert_eq!((error.holders, error.limit), (1, SECOND));
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn closing_within_a_limit_is_quick_where_nothing_is_held() {
    let (engine, locks, _) = ScriptedEngine::new();
    drop(held(&engine, &locks));
    let mut close = poll(locks.close_within(SECOND));
    engine.closed();
    close.ready().unwrap();
}

#[tokio::test]
async fn a_key_that_is_not_one_is_told_by_the_future() {
    let (engine, locks, _) = ScriptedEngine::new();
    assert!(matches!(
        Polled::new(locks.try_acquire("")).ready(),
        Err(AcquireError::Key(_))
    ));
    let mut acquire = Polled::new(locks.acquire("").within(SECOND));
    assert!(matches!(acquire.ready(), Err(AcquireError::Key(_))));
    assert!(engine.has_nothing_to_do());
}

#[tokio::test]
async fn clones_and_namespaces_share_one_gate_and_names_differ_by_namespace() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    assert!(Polled::new(locks.clone().try_acquire("job")).ready().unwrap().is_none());
    let other = locks.with_namespace(crate::Namespace::new("other").unwrap());
    let _pending = poll(other.try_acquire("job"));
    assert_ne!(engine.asked(ONCE).key, guard.key());
    assert_eq!(locks.stats(), other.stats());
}

#[tokio::test]
async fn the_counters_tell_what_happened_to_keys() {
    let (engine, locks, _) = ScriptedEngine::new();
    let first = held(&engine, &locks);
    assert!(Polled::new(locks.try_acquire("job")).ready().unwrap().is_none());
    let mut second = poll(locks.acquire("job").without_limit());
    drop(poll(locks.acquire("job").without_limit()));
    drop(first);
    let second = second.ready().unwrap();
    let expected = Stats {
        keys: 1,
        holders: 1,
        granted: 1,
        handed_over: 1,
        denied: 1,
        abandoned: 1,
        released: 1,
        ..Stats::default()
    };
    assert_eq!(locks.stats(), expected);
    engine.lose_session();
    drop(second);
    let expected = Stats {
        keys: 0,
        holders: 0,
        lost: 1,
        ..expected
    };
    assert_eq!(locks.stats(), expected);

    let mut failing = poll(locks.try_acquire("job"));
    let error = EngineError::new(EngineErrorKind::Failed);
    engine.asked(ONCE).reply.send(Err(error));
    assert!(failing.ready().is_err());
    assert_eq!(locks.stats().failed, 1);
}

#[tokio::test]
async fn the_counters_tell_what_happened_to_slots_and_outlive_the_pool() {
    let (engine, locks, _) = ScriptedEngine::new();
    let pool = locks.slots("pool", 1).unwrap();
    let mut attempt = poll(pool.try_acquire());
    let request = engine.asked_for_slots();
    request.reply.candidates();
    request.reply.send(Ok(vec![(0, engine.a_grant())]));
    let permit = attempt.ready().unwrap().unwrap();
    assert!(Polled::new(pool.try_acquire()).ready().unwrap().is_none());
    let mut next = poll(pool.acquire().without_limit());
    drop(poll(pool.acquire().without_limit()));
    drop(permit);
    let next = next.ready().unwrap();
    let expected = Stats {
        holders: 1,
        granted: 1,
        handed_over: 1,
        denied: 1,
        abandoned: 1,
        released: 1,
        ..Stats::default()
    };
    assert_eq!(locks.stats(), expected);
    drop((next, pool));
    engine.released();
    drop(engine.asked_for_slots());
    let expected = Stats {
        holders: 0,
        released: 2,
        ..expected
    };
    assert_eq!(locks.stats(), expected);
}

#[test]
fn a_long_row_of_waiters_that_have_gone_without_a_word_is_passed_over() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    for _ in 0..50_000 {
        let want = Want::Queue { until: Moment::NEVER };
        drop(locks.at(guard.key()).unwrap().0.enter(guard.key(), guard.mode(), want));
    }
    let mut stays = poll(locks.acquire("job").without_limit());
    drop(guard);
    stays.ready().unwrap().leak();
    assert_eq!(locks.stats().handed_over, 50_001);
    assert!(engine.has_nothing_to_do());
}

#[tokio::test]
async fn guards_and_waiters_outlive_the_locks_through_a_loss_and_the_engine_goes_with_the_last_of_them() {
    let (engine, locks, _) = ScriptedEngine::new();
    let guard = held(&engine, &locks);
    let mut waiting = poll(locks.acquire("job").without_limit());
    let mut trying = poll(locks.try_acquire("other"));
    drop(locks);
    engine.lose_session();
    assert_eq!(guard.state(), HoldState::Lost);
    // What was on its way is answered as if nothing had happened, on the session that is there now.
    engine.grant(engine.asked(ONCE));
    let other = trying.ready().unwrap().unwrap();
    engine.grant(engine.asked(FIRST));
    let next = waiting.ready().unwrap();
    assert!(next.is_held() && other.is_held());
    drop((guard, waiting, trying));
    assert!(engine.has_nothing_to_do(), "a lost guard gives nothing back");
    assert!(Arc::strong_count(&engine) > 1);
    drop((next, other));
    drop((engine.released(), engine.released()));
    assert_eq!(Arc::strong_count(&engine), 1, "nobody keeps it");
}

#[tokio::test]
async fn sessions_that_come_and_go_leave_nothing_behind() {
    let (engine, locks, _) = ScriptedEngine::new();
    for _ in 0..100 {
        let guard = held(&engine, &locks);
        let session = engine.session();
        engine.lose_session();
        assert_eq!(guard.state(), HoldState::Lost);
        drop(guard);
        assert_eq!(Arc::strong_count(&session), 1);
    }
    drop(held(&engine, &locks));
    drop(engine.released());
    assert_eq!((locks.stats().keys, locks.stats().holders), (0, 0));
    drop(locks);
    assert_eq!(Arc::strong_count(&engine), 1);
}
