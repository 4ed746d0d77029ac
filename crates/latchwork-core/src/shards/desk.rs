//! What a worker and its task share: the shards that it may keep, and what it has yet to be told.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Shard, ShardEvent};
use crate::{AcquireError, locks::lock};

#[derive(Debug, Default)]
pub(super) struct Desk {
    state: Mutex<State>,
    /// Wakes the one reader.
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Those that were gained and not revoked, in order.
    kept: Vec<Kept>,
    untold: VecDeque<ShardEvent>,
    /// Nothing is gained any more.
    leaves: bool,
    /// Nobody will read any more.
    unread: bool,
    ended: bool,
    failure: Option<Arc<AcquireError>>,
}

#[derive(Debug)]
struct Kept {
    index: u32,
    revoked: CancellationToken,
}

impl Desk {
    /// Tells of a shard that was gained. One that comes too late is dropped, which gives it up.
    pub(super) fn gain(&self, shard: Shard) {
        let mut state = lock(&self.state);
        if state.leaves {
            // Not under the mutex, as everything that is dropped here.
            drop(state);
            return drop(shard);
        }
        state.kept.push(Kept {
            index: shard.index(),
            revoked: shard.cancellation_token(),
        });
        state.untold.push_back(ShardEvent::Gained(shard));
        drop(state);
        self.news.notify_one();
    }

    /// Wants the newest given up, until so many are left.
    pub(super) fn keep(&self, share: usize) {
        let mut state = lock(&self.state);
        let most = share.min(state.kept.len());
        let newest = state.kept.split_off(most);
        drop(state);
        newest.into_iter().rev().for_each(|kept| self.revoke(kept));
    }

    /// Wants a shard given up, unless that was wanted before.
    pub(super) fn lose(&self, index: u32) {
        let mut state = lock(&self.state);
        let at = state.kept.iter().position(|kept| kept.index == index);
        let lost = at.map(|at| state.kept.remove(at));
        drop(state);
        if let Some(lost) = lost {
            self.revoke(lost);
        }
    }

    /// Wants all given up, and nothing gained any more.
    pub(super) fn leave(&self) {
        lock(&self.state).leaves = true;
        self.keep(0);
    }

    /// As [`leave`](Self::leave), of a worker that reads no more.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.unread = true;
        let untold = std::mem::take(&mut state.untold);
        drop(state);
        drop(untold);
        self.leave();
    }

    pub(super) fn leaves(&self) -> bool {
        lock(&self.state).leaves
    }

    /// Says that nothing stays to be told.
    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.news.notify_one();
    }

    pub(super) fn failed(&self, failure: Option<AcquireError>) {
        lock(&self.state).failure = failure.map(Arc::new);
    }

    pub(super) fn failure(&self) -> Option<Arc<AcquireError>> {
        lock(&self.state).failure.clone()
    }

    /// Waits for what is to be told; `None` once there will be nothing more.
    pub(super) async fn next(&self) -> Option<ShardEvent> {
        loop {
            {
                let mut state = lock(&self.state);
                let event = state.untold.pop_front();
                if event.is_some() || state.ended {
                    return event;
                }
            }
            // What has come since then has left its word.
            self.news.notified().await;
        }
    }

    /// Takes back what the worker was not told of yet, and else tells it.
    fn revoke(&self, Kept { index, revoked }: Kept) {
        // Before it is told: whoever reads of it finds its value revoked.
        revoked.cancel();
        let mut state = lock(&self.state);
        let is_it = |event: &ShardEvent| matches!(event, ShardEvent::Gained(shard) if shard.index() == index);
        let unfetched = state.untold.iter().position(is_it);
        let unfetched = unfetched.and_then(|at| state.untold.remove(at));
        if unfetched.is_none() && !state.unread {
            state.untold.push_back(ShardEvent::Lost(index));
        }
        drop(state);
        drop(unfetched);
        self.news.notify_one();
    }
}
