//! Subscribers that do not read.

use super::until_leader;
use crate::{
    leader::{LeaderState, Transition, Transitions},
    memory::MemoryServer,
};

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_holds_nobody_up_and_is_told_how_much_it_has_missed() {
    let server = MemoryServer::new();
    let candidate = server.locks().leader("a").campaign().unwrap();
    let (mut quick, mut slow) = (candidate.transitions(), candidate.transitions());
    let mut seen = Vec::new();
    while seen.len() < 3 * Transitions::KEPT {
        match quick.next().await.unwrap() {
            Transition::To(state) => seen.push(state),
            other => panic!("{other:?}"),
        }
        if matches!(seen.last(), Some(LeaderState::Leader(_))) {
            candidate.resign().await;
        }
    }
    until_leader(&candidate).await;
    candidate.shutdown().await;
    while let Some(transition) = quick.next().await {
        match transition {
            Transition::To(state) => seen.push(state),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen.last(), Some(&LeaderState::Closed));
    assert_eq!(slow.next().await, Some(Transition::To(LeaderState::Follower)));
    // Its first was the state at that time; the last comes behind the gap.
    assert_eq!(slow.next().await, Some(Transition::Lagged(seen.len() as u64 - 1)));
    assert_eq!(slow.next().await, Some(Transition::To(LeaderState::Closed)));
    assert_eq!(slow.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn whoever_subscribes_late_begins_with_the_present_state() {
    let server = MemoryServer::new();
    let candidate = server.locks().leader("a").campaign().unwrap();
    let state = until_leader(&candidate).await;
    let mut late = candidate.transitions();
    assert_eq!(late.next().await, Some(Transition::To(state)));
    candidate.shutdown().await;
    let term = state.term().unwrap();
    assert_eq!(late.next().await, Some(Transition::To(LeaderState::Resigned(term))));
}
