//! Work that does not return in time, and work that waits for what waits for it.

use std::{future::pending, time::Duration};

use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

use super::{until, until_leader};
use crate::{
    fence::Term,
    leader::{Candidate, LeaderState, Transition, Transitions},
    memory::MemoryServer,
};

const LIMIT: Duration = Duration::from_secs(5);

async fn next(transitions: &mut Transitions) -> LeaderState {
    match timeout(Duration::from_secs(600), transitions.next()).await.unwrap() {
        Some(Transition::To(state)) => state,
        other => panic!("{other:?}"),
    }
}

/// The transitions of one that leads, which have begun with its term.
async fn followed(one: &Candidate) -> (Transitions, Term) {
    let (mut transitions, term) = (one.transitions(), one.state().term().unwrap());
    assert_eq!(next(&mut transitions).await, LeaderState::Leader(term));
    (transitions, term)
}

/// A candidate whose work never returns, and that leads.
async fn stubborn(server: &MemoryServer) -> (Candidate, tokio::task::JoinHandle<Option<()>>) {
    let one = server.locks().leader("a").with_drain_limit(LIMIT).campaign().unwrap();
    let (begun, has_begun) = oneshot::channel();
    let mut begun = Some(begun);
    let work = tokio::spawn({
        let one = one.clone();
        let work = move |_, _| {
            begun.take().unwrap().send(()).unwrap();
            pending::<()>()
        };
        async move { one.run(work).await }
    });
    has_begun.await.unwrap();
    (one, work)
}

#[tokio::test(start_paused = true)]
async fn work_that_goes_on_after_a_loss_is_told_of_when_its_limit_is_over() {
    let server = MemoryServer::new();
    let (one, work) = stubborn(&server).await;
    let (mut transitions, term) = followed(&one).await;
    let begun = Instant::now();
    server.end_sessions();
    assert_eq!(next(&mut transitions).await, LeaderState::Lost(term));
    assert_eq!(next(&mut transitions).await, LeaderState::Undrained(term));
    assert_eq!(begun.elapsed(), LIMIT);
    assert!(timeout(Duration::from_secs(60), transitions.next()).await.is_err());
    work.abort();
    assert_eq!(next(&mut transitions).await, LeaderState::Follower);
    until_leader(&one).await;
}

#[tokio::test(start_paused = true)]
async fn a_loss_while_work_is_waited_for_does_not_make_it_returned() {
    let server = MemoryServer::new();
    let (one, work) = stubborn(&server).await;
    let (mut transitions, term) = followed(&one).await;
    let begun = Instant::now();
    let resigned = one.resign();
    sleep(Duration::from_secs(1)).await;
    server.end_sessions();
    resigned.await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1), "there is no lock to wait for");
    assert_eq!(next(&mut transitions).await, LeaderState::Resigned(term));
    assert_eq!(next(&mut transitions).await, LeaderState::Undrained(term));
    assert_eq!(begun.elapsed(), LIMIT);
    work.abort();
    assert_eq!(next(&mut transitions).await, LeaderState::Follower);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_never_comes_is_none() {
    let server = MemoryServer::new();
    let one = server.locks().leader("a").with_drain_limit(Duration::MAX);
    let one = one.campaign().unwrap();
    let last = one.run(|_, _| async { 7 });
    assert_eq!(timeout(Duration::from_secs(60), last).await.unwrap(), Some(7));
}

#[tokio::test(start_paused = true)]
async fn work_that_waits_for_its_own_resignation_goes_on_at_once_and_is_cancelled() {
    let server = MemoryServer::new();
    let one = server.locks().leader("a").campaign().unwrap();
    let other = server.locks().leader("a").campaign().unwrap();
    let mut times = 0;
    let last = one.run(|leading, cancel| {
        times += 1;
        let (one, other, time) = (one.clone(), other.clone(), times);
        async move {
            if time > 1 {
                return;
            }
            // In the middle of something else, as long as it is polled in here.
            tokio::join!(one.resign(), async {});
            assert!(cancel.is_cancelled() && !leading.is_leader());
            sleep(Duration::from_secs(60)).await;
            assert!(!other.is_leader(), "the lock is kept until this has returned");
        }
    });
    let relieves = async {
        until_leader(&other).await;
        other.shutdown().await;
    };
    let both = async { tokio::join!(last, relieves) };
    let (last, ()) = timeout(Duration::from_secs(600), both).await.unwrap();
    assert_eq!((last, times), (Some(()), 2), "it was cancelled the first time");
}

#[tokio::test(start_paused = true)]
async fn work_that_shuts_its_candidate_down_returns_and_then_that_is_shut_down() {
    let server = MemoryServer::new();
    let one = server.locks().leader("a").campaign().unwrap();
    let last = one.run(|_, _| one.shutdown());
    assert_eq!(timeout(Duration::from_secs(60), last).await.unwrap(), None);
    timeout(Duration::from_secs(60), one.shutdown()).await.unwrap();
    assert_eq!(one.state(), LeaderState::Closed);
}

#[tokio::test(start_paused = true)]
async fn work_inside_the_work_of_another_waits_for_neither() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let outer = locks.leader("outer").campaign().unwrap();
    let inner = locks.leader("inner").campaign().unwrap();
    let beside = locks.leader("beside").campaign().unwrap();
    until_leader(&beside).await;
    let last = outer.run(|_, _| async {
        let work = |_, _| async {
            outer.resign().await;
            inner.resign().await;
            // This one is not in the way of anybody.
            beside.resign().await;
            assert!(matches!(
                beside.state(),
                LeaderState::Follower | LeaderState::Resigned(_)
            ));
            inner.shutdown().await;
        };
        assert_eq!(inner.run(work).await, None);
        outer.shutdown().await;
    });
    assert_eq!(timeout(Duration::from_secs(60), last).await.unwrap(), None);
    until(&outer, |state| *state == LeaderState::Closed).await;
}
