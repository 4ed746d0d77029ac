//! Leaders on PostgreSQL: who leads, how quickly the next one does, and what each may believe.

mod processes;
mod promotions;
mod sessions;

use latchwork_core::leader::{Candidate, LeaderState};

async fn until(candidate: &Candidate, wanted: impl FnMut(&LeaderState) -> bool) -> LeaderState {
    let mut states = candidate.watch();
    let state = tokio::time::timeout(crate::onlooker::SOON, states.wait_for(wanted));
    *state.await.expect("soon").unwrap()
}

async fn until_leader(candidate: &Candidate) -> LeaderState {
    until(candidate, |state| matches!(state, LeaderState::Leader(_))).await
}
