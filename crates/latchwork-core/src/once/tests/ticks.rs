//! Ticks: each is run once at most, whatever the nodes' clocks say.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use super::{HOUR, SECOND, noon};
use crate::{
    Locks, ReleaseError, WallClock,
    memory::MemoryServer,
    once::{LedgerError, OnceError, Outcome, RunEnd, Schedule, Skipped, TickClaim},
    testing::{Polled, ScriptedEngine},
};

/// A server whose clock shows noon.
fn server() -> MemoryServer {
    MemoryServer::on_clock(WallClock::of_tokio(noon()))
}

async fn run_tick(locks: &Locks, tick: Duration) -> Outcome<()> {
    let job = locks.once("job").tick(noon() + tick, HOUR);
    job.run(async {}).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_run_once_and_so_is_a_later_one_but_no_earlier_one() {
    let server = server();
    let (one, other) = (server.locks(), server.locks());
    let claimed = Outcome::Skipped(Skipped::Claimed);
    assert_eq!(run_tick(&one, SECOND).await, Outcome::Ran(()));
    assert_eq!(run_tick(&other, SECOND).await, claimed);
    assert_eq!(run_tick(&one, SECOND).await, claimed);
    assert_eq!(run_tick(&other, 2 * SECOND).await, Outcome::Ran(()));
    assert_eq!(run_tick(&one, SECOND).await, claimed);
    assert_eq!(server.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn jobs_have_ticks_of_their_own() {
    let locks = server().locks();
    for name in ["one", "other"] {
        let job = locks.once(name).tick(noon(), HOUR);
        assert_eq!(job.run(async {}).await.unwrap(), Outcome::Ran(()));
    }
    let pair = locks.once(crate::Key::pair(1, 2)).tick(noon(), HOUR);
    assert_eq!(pair.run(async {}).await.unwrap(), Outcome::Ran(()));
}

#[tokio::test(start_paused = true)]
async fn a_tick_in_2030_is_an_error_and_stops_nobody() {
    let locks = server().locks();
    let in_2030 = noon() + 7 * 365 * 24 * HOUR;
    let wrong = WallClock::from_fn(move || in_2030);
    let hourly = Schedule::every(HOUR).unwrap();
    let error = locks
        .once("job")
        .on(&hourly)
        .with_clock(wrong)
        .run(async {})
        .await
        .unwrap_err();
    assert!(matches!(error, OnceError::Ahead { allowed: HOUR, .. }), "{error}");
    assert!(error.to_string().contains("set the clock"), "{error}");
    assert!(!error.is_outage() && !error.has_begun());
    assert_eq!(run_tick(&locks, Duration::ZERO).await, Outcome::Ran(()));
}

#[tokio::test(start_paused = true)]
async fn a_tick_may_lie_ahead_by_as_much_as_is_allowed() {
    let locks = server().locks();
    assert_eq!(run_tick(&locks, HOUR).await, Outcome::Ran(()));
    let job = locks.once("job").tick(noon() + HOUR + SECOND / 1_000, HOUR);
    assert!(matches!(job.run(async {}).await, Err(OnceError::Ahead { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_seldom_due_may_not_be_run_days_before() {
    let locks = server().locks();
    let weekly = Schedule::every(7 * 24 * HOUR).unwrap();
    let ahead = WallClock::from_fn(|| noon() + 7 * 24 * HOUR);
    let error = locks
        .once("job")
        .on(&weekly)
        .with_clock(ahead)
        .run(async {})
        .await
        .unwrap_err();
    assert!(matches!(error, OnceError::Ahead { allowed: HOUR, .. }), "{error}");
}

/// Each node comes when its own clock says that a tick is due.
#[tokio::test(start_paused = true)]
async fn nodes_with_skewed_clocks_run_each_tick_once_between_them() {
    let server = server();
    let runs = Arc::new(AtomicUsize::new(0));
    let schedule = Schedule::every(SECOND).unwrap();
    let nodes = [0_u32, 300, 900, 1_700].map(|skew| {
        let begun = WallClock::of_tokio(noon());
        let clock = WallClock::from_fn(move || begun.now() - Duration::from_millis(skew.into()));
        let (locks, runs, schedule) = (server.locks(), Arc::clone(&runs), schedule.clone());
        tokio::spawn(async move {
            let mut outcomes = 0;
            for _ in 0..100 {
                let job = locks.once("job").on(&schedule).with_clock(clock.clone());
                let outcome = job.run(async { runs.fetch_add(1, Ordering::Relaxed) }).await.unwrap();
                outcomes += usize::from(!outcome.is_skipped());
                sleep(SECOND / 10).await;
            }
            outcomes
        })
    });
    let mut told = 0;
    for node in nodes {
        told += node.await.unwrap();
    }
    // Noon, and the nine full seconds after it.
    assert_eq!((runs.load(Ordering::Relaxed), told), (10, 10));
}

#[tokio::test(start_paused = true)]
async fn the_ledger_tells_of_the_last_run_by_whom_and_how_it_ended() {
    let server = server();
    let locks = server.locks();
    let job = || locks.once(["nightly", "bills"]);
    assert_eq!(job().last_run().await.unwrap(), None);
    job().tick(noon(), HOUR).run(sleep(3 * SECOND)).await.unwrap();
    let last = job().last_run().await.unwrap().unwrap();
    assert_eq!((last.name.as_str(), last.tick), ("nightly/bills", noon()));
    assert_eq!((last.end, last.took()), (Some(RunEnd::Done), Some(3 * SECOND)));
    assert!(last.claimed_by.starts_with("memory#"), "{last:?}");

    let overrun = job()
        .tick(noon() + SECOND, HOUR)
        .with_max_run(SECOND)
        .run(pending::<()>());
    overrun.await.unwrap_err();
    let last = job().last_run().await.unwrap().unwrap();
    assert_eq!((last.end, last.took()), (Some(RunEnd::Overran), Some(SECOND)));

    let dropped = job().tick(noon() + 2 * SECOND, HOUR).run(pending::<()>());
    assert!(timeout(SECOND, dropped).await.is_err());
    assert_eq!(job().last_run().await.unwrap().unwrap().end, Some(RunEnd::Dropped));

    let lost = tokio::spawn(job().tick(noon() + 3 * SECOND, HOUR).run(pending::<()>()));
    sleep(SECOND).await;
    let running = job().last_run().await.unwrap().unwrap();
    assert_eq!((running.end, running.took()), (None, None));
    server.end_sessions();
    lost.await.unwrap().unwrap_err();
    assert_eq!(job().last_run().await.unwrap().unwrap().end, Some(RunEnd::Lost));
}

#[tokio::test(start_paused = true)]
async fn whoever_begins_a_run_says_how_it_ended_and_is_told_whether_the_lock_was_held() {
    let server = server();
    let locks = server.locks();
    let job = || locks.once("by hand");
    let begin = async |tick: u32, hold: Duration| {
        let once = job().tick(noon() + tick * SECOND, HOUR).with_hold_at_least(hold);
        once.begin().await.unwrap().ran().expect("nobody else does it")
    };
    let end_of = async || job().last_run().await.unwrap().unwrap().end;

    let run = begin(0, 3 * SECOND).await;
    sleep(SECOND).await;
    let begun = Instant::now();
    run.end(RunEnd::Failed).await.unwrap();
    assert_eq!((end_of().await, begun.elapsed()), (Some(RunEnd::Failed), 2 * SECOND));
    let again = job().tick(noon(), HOUR).begin().await.unwrap();
    assert!(again.is_skipped());
    assert_eq!(server.held(), 0);

    drop(begin(1, Duration::ZERO).await);
    assert_eq!(end_of().await, Some(RunEnd::Dropped));

    let mut run = begin(2, Duration::ZERO).await;
    run.note(RunEnd::Failed).await;
    assert_eq!(server.held(), 1);
    run.end(RunEnd::Done).await.unwrap();
    assert_eq!(end_of().await, Some(RunEnd::Failed));

    let run = begin(3, 60 * SECOND).await;
    let lost = run.lost();
    server.end_sessions();
    lost.await;
    let begun = Instant::now();
    let error = run.end(RunEnd::Done).await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost { .. }), "{error}");
    assert!(begun.elapsed().is_zero(), "there is nothing to keep");
}

#[tokio::test(start_paused = true)]
async fn without_a_tick_the_ledger_is_not_asked() {
    let (engine, locks, _hand) = ScriptedEngine::new();
    let mut run = Polled::new(locks.once("job").run(async { 7 }));
    assert!(run.is_pending());
    engine.grant(engine.asked_at_all());
    assert!(run.is_pending(), "its release is awaited");
    engine.released().reply.send(Ok(true));
    assert_eq!(run.ready().unwrap(), Outcome::Ran(7));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_without_an_answer_is_an_outage_and_the_lock_is_given_up() {
    // This engine drops what the ledger is asked.
    let (engine, locks, _hand) = ScriptedEngine::new();
    let mut run = Polled::new(locks.once("job").tick(noon(), HOUR).run(async {}));
    assert!(run.is_pending());
    engine.grant(engine.asked_at_all());
    let error = run.ready().unwrap_err();
    assert!(
        matches!(error, OnceError::Ledger(LedgerError::Unavailable(_))),
        "{error}"
    );
    assert!(error.is_outage());
    engine.released().reply.send(Ok(true));
}

#[test]
fn a_schedule_that_has_no_tick_yet_is_not_due() {
    let locks = Locks::in_memory();
    let job = locks.once("job");
    assert!(job.claim().unwrap().is_none(), "no tick was set");
    let claim = job.tick(noon(), HOUR).claim().unwrap().unwrap();
    assert_eq!(
        (claim.tick(), claim.name(), claim.end()),
        (noon(), "job", Some(RunEnd::Committed))
    );
    assert_eq!(claim.key(), TickClaim::ledger_key(claim_key(&locks)));
}

fn claim_key(locks: &Locks) -> crate::Key {
    locks.namespace().key("job").unwrap()
}
