//! The lock of a run: who is kept out, and for how long.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{
    task::yield_now,
    time::{Instant, sleep, timeout},
};

use super::SECOND;
use crate::{
    AcquireError, Locks, ReleaseError,
    engine::{Attempt, EngineError, EngineErrorKind},
    memory::MemoryServer,
    once::{OnceError, Outcome, Skipped},
    testing::{Polled, ScriptedEngine},
};

async fn is_free(locks: &Locks) -> bool {
    locks.try_acquire("job").await.unwrap().is_some()
}

/// Says when it is dropped.
struct Bell(Arc<AtomicBool>);

impl Drop for Bell {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_two_runs_and_the_other_is_told_at_once() {
    let server = MemoryServer::new();
    let (one, other) = (server.locks(), server.locks());
    let begun = Instant::now();
    let work = async {
        let outcome = other.once("job").run(async { "other" }).await.unwrap();
        assert_eq!(outcome, Outcome::Skipped(Skipped::Held));
        assert!(begun.elapsed().is_zero());
        sleep(SECOND).await;
        "one"
    };
    assert_eq!(one.once("job").run(work).await.unwrap().ran(), Some("one"));
    assert_eq!(
        other.once("job").run(async { "other" }).await.unwrap(),
        Outcome::Ran("other")
    );
    assert_eq!(server.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_done_at_once_keeps_others_out_for_as_long_as_is_wanted() {
    let server = MemoryServer::new();
    let (one, other) = (server.locks(), server.locks());
    let begun = Instant::now();
    let job = |locks: &Locks| locks.once("job").with_hold_at_least(5 * SECOND);
    assert!(!job(&one).run(async {}).await.unwrap().is_skipped());
    assert!(begun.elapsed().is_zero(), "the value comes at once");
    sleep(5 * SECOND - SECOND / 10).await;
    assert_eq!(
        job(&other).run(async {}).await.unwrap(),
        Outcome::Skipped(Skipped::Held)
    );
    assert_eq!(job(&one).run(async {}).await.unwrap(), Outcome::Skipped(Skipped::Held));
    sleep(SECOND / 5).await;
    assert!(!job(&other).run(async {}).await.unwrap().is_skipped());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_takes_longer_is_not_held_beyond_its_end() {
    let locks = MemoryServer::new().locks();
    let job = locks.once("job").with_hold_at_least(SECOND);
    job.run(sleep(2 * SECOND)).await.unwrap();
    assert!(is_free(&locks).await);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_until_the_lock_was_held_for_long_enough() {
    let locks = MemoryServer::new().locks();
    let begun = Instant::now();
    locks
        .once("job")
        .with_hold_at_least(5 * SECOND)
        .run(async {})
        .await
        .unwrap();
    locks.close().await;
    assert_eq!(begun.elapsed(), 5 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_is_dropped_midway_keeps_the_lock_for_as_long_and_no_longer() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let dropped = Arc::new(AtomicBool::new(false));
    let bell = Bell(Arc::clone(&dropped));
    let run = locks.once("job").with_hold_at_least(5 * SECOND).run(async move {
        let _bell = bell;
        pending::<()>().await
    });
    assert!(timeout(SECOND, run).await.is_err());
    assert!(dropped.load(Ordering::Acquire), "the work is gone");
    assert!(!is_free(&locks).await);
    sleep(4 * SECOND + SECOND / 10).await;
    assert!(is_free(&locks).await);
    let run = locks.once("job").run(pending::<()>());
    assert!(timeout(SECOND, run).await.is_err());
    assert!(is_free(&locks).await);
    assert_eq!(server.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn work_that_overruns_is_dropped_before_the_lock_is_given_up() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let (dropped, held) = (Arc::new(AtomicBool::new(false)), server.clone());
    let bell = Bell(Arc::clone(&dropped));
    let begun = Instant::now();
    let error = locks.once("job").with_max_run(3 * SECOND).run(async move {
        struct Checks(
            MemoryServer,
            #[expect(dead_code, reason = "rings when it is dropped")] Bell,
        );
        impl Drop for Checks {
            fn drop(&mut self) {
                assert_eq!(self.0.held(), 1, "the lock outlives the work");
            }
        }
        let _checks = Checks(held, bell);
        pending::<()>().await
    });
    let error = error.await.unwrap_err();
    assert!(
        matches!(error, OnceError::Overran { limit, .. } if limit == 3 * SECOND),
        "{error}"
    );
    assert!(error.has_begun() && !error.is_outage());
    assert_eq!(begun.elapsed(), 3 * SECOND);
    assert!(dropped.load(Ordering::Acquire));
    assert_eq!(server.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_stops_the_work() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let job = locks.once("job").with_hold_at_least(60 * SECOND);
    let run = tokio::spawn(job.run(pending::<()>()));
    yield_now().await;
    server.end_sessions();
    let error = run.await.unwrap().unwrap_err();
    assert!(matches!(error, OnceError::Lost(_)), "{error}");
    assert!(is_free(&locks).await, "there is nothing to keep");
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_let_go_of_when_it_is_lost() {
    let server = MemoryServer::new();
    let locks = server.locks();
    locks
        .once("job")
        .with_hold_at_least(60 * SECOND)
        .run(async {})
        .await
        .unwrap();
    server.end_sessions();
    let begun = Instant::now();
    locks.close().await;
    assert!(begun.elapsed().is_zero());
}

#[test]
fn without_a_runtime_the_lock_is_given_up_when_the_work_is_done() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let run = locks.once("job").with_hold_at_least(60 * SECOND).run(async { 7 });
    assert_eq!(Polled::new(run).ready().unwrap(), Outcome::Ran(7));
    assert_eq!(server.held(), 0);
}

/// Lets the work be done, and the server answer so when the lock is given up.
async fn ends_with(answer: Result<bool, EngineErrorKind>) -> Result<Outcome<i32>, OnceError> {
    let (engine, locks, _hand) = ScriptedEngine::new();
    let mut run = Polled::new(locks.once("job").run(async { 7 }));
    assert!(run.is_pending());
    engine.grant(engine.asked(Attempt::Once { patient: false }));
    assert!(run.is_pending());
    engine.released().reply.send(answer.map_err(EngineError::new));
    run.ready()
}

#[tokio::test]
async fn a_lock_that_was_lost_unseen_is_told_though_the_work_is_done() {
    assert_eq!(ends_with(Ok(true)).await.unwrap(), Outcome::Ran(7));
    let error = ends_with(Ok(false)).await.unwrap_err();
    assert!(
        matches!(error, OnceError::Release(ReleaseError::Lost { .. })),
        "{error}"
    );
    assert!(error.has_begun() && !error.is_outage());
    let error = ends_with(Err(EngineErrorKind::ConnectionLost)).await.unwrap_err();
    assert!(
        matches!(error, OnceError::Release(ReleaseError::Unconfirmed { .. })),
        "{error}"
    );
}

#[tokio::test]
async fn an_outage_is_no_skip() {
    let (engine, locks, _hand) = ScriptedEngine::new();
    let mut run = Polled::new(locks.once("job").run(async {}));
    assert!(run.is_pending());
    let request = engine.asked(Attempt::Once { patient: false });
    request.reply.send(Err(EngineError::new(EngineErrorKind::Unavailable)));
    let error = run.ready().unwrap_err();
    assert!(
        matches!(error, OnceError::Acquire(AcquireError::Unavailable { .. })),
        "{error}"
    );
    assert!(error.is_outage() && !error.has_begun());
}

#[tokio::test]
async fn a_name_that_is_no_key_is_told() {
    let locks = Locks::in_memory();
    let long = "x".repeat(crate::key::MAX_NAME_LEN + 1);
    let error = locks.once(long).run(async {}).await.unwrap_err();
    assert!(matches!(error, OnceError::Acquire(AcquireError::Key(_))), "{error}");
}
