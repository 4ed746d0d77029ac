//! One candidate or two, on a server in memory.

use std::{future::pending, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::yield_now,
    time::{Instant, timeout},
};

use super::{until, until_leader};
use crate::{
    leader::{Candidate, LeaderState, Transition},
    memory::MemoryServer,
};

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_the_other_once_it_resigns() {
    let server = MemoryServer::new();
    let one = server.locks().leader("a").campaign().unwrap();
    let first = until_leader(&one).await.term().unwrap();
    let other = server.locks().leader("a").campaign().unwrap();
    assert!(one.is_leader() && !other.is_leader());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(one.is_leader() && !other.is_leader());
    let resigned = one.resign();
    assert!(!one.is_leader(), "by the call itself");
    resigned.await;
    let second = until_leader(&other).await.term().unwrap();
    assert!(second > first);
    assert!(!one.is_leader());
    let shut_down = other.shutdown();
    assert!(!other.is_leader(), "by the call itself");
    shut_down.await;
    assert_eq!(other.state(), LeaderState::Closed);
    let third = until_leader(&one).await.term().unwrap();
    assert!(third > second);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_dropped_resigns() {
    let server = MemoryServer::new();
    let one = server.locks().leader("a").campaign().unwrap();
    until_leader(&one).await;
    let clone = one.clone();
    drop(one);
    yield_now().await;
    assert!(clone.is_leader());
    drop(clone);
    let other = server.locks().leader("a").campaign().unwrap();
    until_leader(&other).await;
}

#[tokio::test(start_paused = true)]
async fn who_is_not_eligible_does_not_lead_and_who_ceases_to_be_resigns() {
    let server = MemoryServer::new();
    let one = server.locks().leader("a").ineligible().campaign().unwrap();
    let other = server.locks().leader("a").campaign().unwrap();
    until_leader(&other).await;
    other.set_eligible(false);
    until(&other, |state| *state == LeaderState::Follower).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!one.is_leader() && !other.is_leader());
    assert_eq!(one.leader().await.unwrap(), None);
    one.set_eligible(true);
    until_leader(&one).await;
}

#[tokio::test(start_paused = true)]
async fn everybody_can_tell_who_leads() {
    let server = MemoryServer::new();
    let one = server.locks().leader("a").campaign().unwrap();
    let term = until_leader(&one).await.term();
    let observer = server.locks().leader("a").ineligible().campaign().unwrap();
    let incumbent = observer.leader().await.unwrap().unwrap();
    assert_eq!(incumbent.term, term);
    assert!(incumbent.since.is_some());
    assert_eq!(Some(incumbent), one.leader().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_leadership_goes_to_the_shortest_delay_among_those_who_wait() {
    let server = MemoryServer::new();
    let delayed = |delay| {
        server
            .locks()
            .leader("a")
            .with_campaign_delay(delay)
            .campaign()
            .unwrap()
    };
    let last = delayed(Duration::from_secs(3));
    let first = delayed(Duration::from_secs(1));
    let second = delayed(Duration::from_secs(2));
    for candidate in [&first, &second, &last] {
        let begun = Instant::now();
        until_leader(candidate).await;
        assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
        candidate.shutdown().await;
    }
}

/// One that leads, and one that waits and leaves a vacancy to others for a second.
async fn leader_and_reluctant(server: &MemoryServer) -> (Candidate, LeaderState, Candidate) {
    let one = server.locks().leader("a").campaign().unwrap();
    let first = until_leader(&one).await;
    let reluctant = server.locks().leader("a").with_campaign_delay(Duration::from_secs(1));
    let reluctant = reluctant.campaign().unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    (one, first, reluctant)
}

#[tokio::test(start_paused = true)]
async fn who_resigns_comes_after_those_who_leave_a_vacancy_to_others_for_a_while() {
    let server = MemoryServer::new();
    let (one, first, reluctant) = leader_and_reluctant(&server).await;
    one.resign().await;
    let next = tokio::select! {
        next = until_leader(&reluctant) => next,
        next = until(&one, |state| matches!(state, LeaderState::Leader(_))) => panic!("{next} once more"),
    };
    assert!(next.term() > first.term());
    // It has come back to wait, as ever.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let vacant = Instant::now();
    reluctant.shutdown().await;
    until_leader(&one).await;
    assert!(vacant.elapsed() < Duration::from_millis(100), "{:?}", vacant.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_resigns_as_its_lock_is_lost_leaves_it_to_others_all_the_same() {
    let server = MemoryServer::new();
    let (one, first, reluctant) = leader_and_reluctant(&server).await;
    // Before the campaign comes to it.
    server.end_sessions();
    let resigned = one.resign();
    until(&one, |state| *state != first).await;
    resigned.await;
    tokio::select! {
        _ = until_leader(&reluctant) => {}
        next = until_leader(&one) => panic!("{next} once more"),
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_resigned_leads_again_after_its_delay_if_nobody_else_wants_to() {
    let server = MemoryServer::new();
    for delay in [Duration::ZERO, Duration::from_secs(7)] {
        let one = server.locks().leader("a").with_resign_delay(delay).campaign().unwrap();
        until_leader(&one).await;
        one.resign().await;
        let vacant = Instant::now();
        until_leader(&one).await;
        assert!(vacant.elapsed() >= delay && vacant.elapsed() < delay + Duration::from_millis(100));
        // One that was not wanted for a while has held off long enough.
        one.resign().await;
        one.set_eligible(false);
        tokio::time::sleep(Duration::from_millis(10)).await;
        one.set_eligible(true);
        let eligible = Instant::now();
        until_leader(&one).await;
        assert!(eligible.elapsed() < Duration::from_millis(100));
        one.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn work_runs_for_each_leadership_until_it_ends_by_itself() {
    let server = MemoryServer::new();
    let candidate = server.locks().leader("a").campaign().unwrap();
    let mut terms = Vec::new();
    let last = candidate.run(|leading, cancel| {
        terms.push(leading.term());
        let (time, server, candidate) = (terms.len(), server.clone(), candidate.clone());
        async move {
            assert!(leading.is_leader() && leading.confirmed().await.is_ok());
            match time {
                1 => server.end_sessions(),
                2 => drop(candidate.resign()),
                _ => return leading.term(),
            }
            cancel.cancelled().await;
            assert!(!leading.is_leader() && leading.confirmed().await.is_err());
            leading.term()
        }
    });
    let last = timeout(Duration::from_secs(60), last).await.unwrap();
    assert_eq!((terms.len(), terms.last().copied()), (3, last));
    assert!(terms.is_sorted());
    assert!(candidate.leading().is_none_or(|leading| Some(leading.term()) > last));
}

#[tokio::test(start_paused = true)]
async fn nobody_else_leads_before_the_work_of_who_has_resigned_has_returned() {
    let server = MemoryServer::new();
    let one = server.locks().leader("a").campaign().unwrap();
    let (begun, has_begun) = oneshot::channel();
    let (finish, finished) = oneshot::channel::<()>();
    let work = tokio::spawn({
        let one = one.clone();
        let mut ends = Some((begun, finished));
        async move {
            let work = |_, _| {
                let ends = ends.take();
                async move {
                    let Some((begun, finished)) = ends else { return };
                    begun.send(()).unwrap();
                    finished.await.unwrap();
                }
            };
            one.run(work).await
        }
    });
    has_begun.await.unwrap();
    let other = server.locks().leader("a").campaign().unwrap();
    let resigned = one.resign();
    until(&one, |state| matches!(state, LeaderState::Resigned(_))).await;
    let waits = timeout(Duration::from_secs(60), until_leader(&other)).await;
    assert!(waits.is_err(), "its work has not returned");
    finish.send(()).unwrap();
    resigned.await;
    until_leader(&other).await;
    one.shutdown().await;
    assert_eq!(work.await.unwrap(), None, "a work that was cancelled is not the last");
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_return_in_time_is_told_of_and_the_next_one_leads() {
    let server = MemoryServer::new();
    let limit = Duration::from_secs(5);
    let one = server.locks().leader("a").with_drain_limit(limit).campaign().unwrap();
    let mut transitions = one.transitions();
    let work = tokio::spawn({
        let one = one.clone();
        async move { one.run(|_, _| pending::<()>()).await }
    });
    let term = until_leader(&one).await.term().unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let other = server.locks().leader("a").campaign().unwrap();
    let begun = Instant::now();
    one.resign().await;
    assert_eq!(begun.elapsed(), limit);
    until_leader(&other).await;
    for state in [
        LeaderState::Follower,
        LeaderState::Leader(term),
        LeaderState::Resigned(term),
        LeaderState::Undrained(term),
    ] {
        assert_eq!(transitions.next().await, Some(Transition::To(state)));
    }
    other.shutdown().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        one.state(),
        LeaderState::Undrained(term),
        "it does not campaign meanwhile"
    );
    work.abort();
    assert!(work.await.unwrap_err().is_cancelled());
    until_leader(&one).await;
}

#[tokio::test(start_paused = true)]
async fn closing_the_locks_closes_their_candidates() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let (leader, follower) = (
        locks.leader("a").campaign().unwrap(),
        locks.leader("a").campaign().unwrap(),
    );
    until_leader(&leader).await;
    let (ended, mut ends) = mpsc::channel(1);
    let work = leader.run(|_, cancel| {
        let ended = ended.clone();
        async move {
            cancel.cancelled().await;
            ended.send(()).await.unwrap();
        }
    });
    let (done, ()) = tokio::join!(work, locks.close());
    assert_eq!(done, None);
    ends.recv().await.unwrap();
    for candidate in [leader, follower] {
        assert_eq!(candidate.state(), LeaderState::Closed);
        candidate.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_work_leaves_a_leader_that_can_resign() {
    let server = MemoryServer::new();
    let one = server.locks().leader("a").campaign().unwrap();
    let work = tokio::spawn({
        let one = one.clone();
        async move { one.run(|_, _| async { panic!("a work that panics") }).await.is_none() }
    });
    assert!(work.await.unwrap_err().is_panic());
    timeout(Duration::from_secs(1), one.resign()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_that_sees_a_loss_before_the_campaign_does_runs_again() {
    let server = MemoryServer::new();
    let candidate = server.locks().leader("a").campaign().unwrap();
    let mut times = 0;
    let last = candidate.run(|leading, _| {
        times += 1;
        let (time, server) = (times, server.clone());
        async move {
            if time == 1 {
                server.end_sessions();
                assert!(leading.confirmed().await.is_err(), "without a turn for the campaign");
            }
            if time == 2 {
                server.end_sessions();
            }
        }
    });
    assert_eq!(timeout(Duration::from_secs(60), last).await.unwrap(), Some(()));
    assert_eq!(times, 3);
}

#[tokio::test(start_paused = true)]
async fn whoever_resigns_second_waits_for_the_lock_too() {
    let server = MemoryServer::new();
    let one = server.locks().leader("a").campaign().unwrap();
    let (begun, has_begun) = oneshot::channel();
    let (finish, finished) = oneshot::channel::<()>();
    let mut ends = Some((begun, finished));
    let work = one.run(|_, _| {
        let ends = ends.take();
        async move {
            if let Some((begun, finished)) = ends {
                begun.send(()).unwrap();
                finished.await.unwrap();
            }
        }
    });
    let resigns = async {
        has_begun.await.unwrap();
        let first = one.resign();
        until(&one, |state| matches!(state, LeaderState::Resigned(_))).await;
        let second = timeout(Duration::from_secs(60), one.resign()).await;
        assert!(second.is_err(), "the lock is held");
        finish.send(()).unwrap();
        first.await;
        one.resign().await;
    };
    let both = async { tokio::join!(work, resigns) };
    timeout(Duration::from_secs(600), both).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_that_is_run_until_a_signal_is_cancelled_then_and_has_returned_before_the_lock_is_free() {
    let server = MemoryServer::new();
    let candidate = server.locks().leader("a").campaign().unwrap();
    let begun = Instant::now();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
    };
    let locks = server.locks();
    let done = candidate
        .run_until(stop, |leading, cancel| {
            let locks = locks.clone();
            async move {
                cancel.cancelled().await;
                tokio::time::sleep(Duration::from_secs(5)).await;
                assert!(!leading.is_leader());
                assert!(locks.try_acquire("a").await.unwrap().is_none());
            }
        })
        .await;
    assert_eq!((done, begun.elapsed()), (None, Duration::from_secs(8)));
    assert_eq!(candidate.state(), LeaderState::Closed);
    assert!(server.locks().try_acquire("a").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_before_the_signal_returns_its_value_and_that_is_all() {
    let server = MemoryServer::new();
    let candidate = server.locks().leader("a").campaign().unwrap();
    assert_eq!(candidate.run_until(pending(), |_, _| async { 7 }).await, Some(7));
    assert_eq!(candidate.state(), LeaderState::Closed);
    let other = server.locks().leader("a").campaign().unwrap();
    until_leader(&other).await;
}

#[tokio::test(start_paused = true)]
async fn who_never_leads_is_shut_down_by_the_signal_too() {
    let server = MemoryServer::new();
    let other = server.locks().leader("a").campaign().unwrap();
    until_leader(&other).await;
    let candidate = server.locks().leader("a").campaign().unwrap();
    let stop = tokio::time::sleep(Duration::from_secs(3));
    assert_eq!(candidate.run_until(stop, |_, _| pending::<()>()).await, None);
    assert_eq!(candidate.state(), LeaderState::Closed);
    assert!(other.is_leader());
}

#[tokio::test(start_paused = true)]
async fn who_is_shut_down_as_the_lock_comes_never_leads() {
    // Often, since either may be seen first.
    for _ in 0..32 {
        let server = MemoryServer::new();
        let held = server.locks().acquire_fenced("a").without_limit().await.unwrap();
        let candidate = server.locks().leader("a").campaign().unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let mut transitions = candidate.transitions();
        drop(held);
        candidate.shutdown().await;
        let mut states = Vec::new();
        while let Some(transition) = transitions.next().await {
            states.push(transition);
        }
        let expected = [LeaderState::Follower, LeaderState::Closed];
        assert_eq!(states, expected.map(Transition::To));
    }
}
