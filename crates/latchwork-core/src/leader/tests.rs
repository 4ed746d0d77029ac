mod candidate;
mod draining;
mod model;
mod slow;
mod work;
mod world;

use tokio::sync::watch;

use super::{Candidate, LeaderState};

/// Waits until the candidate is in such a state, and returns it.
async fn until(candidate: &Candidate, wanted: impl FnMut(&LeaderState) -> bool) -> LeaderState {
    let mut states: watch::Receiver<LeaderState> = candidate.watch();
    *states.wait_for(wanted).await.unwrap()
}

async fn until_leader(candidate: &Candidate) -> LeaderState {
    until(candidate, |state| matches!(state, LeaderState::Leader(_))).await
}
