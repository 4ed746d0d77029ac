//! The task of a worker.

use std::{error::Error, pin::pin, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{Shard, ShardEvent};
use crate::{
    engine::{AnnounceReply, AnnounceRequest, Announced, Grant, ReleaseReply, ReleaseRequest},
    key::Key,
    locks::Inner,
    mode::Mode,
    slots::{Permit, Slots},
};

pub(super) struct Driver {
    inner: Arc<Inner>,
    slots: Slots,
    /// What the worker shows itself by. Its second half tells it from others.
    marker: Key,
    held_marker: Option<Grant>,
    rebalance_interval: Duration,
    events: mpsc::UnboundedSender<ShardEvent>,
    /// Those that were gained and whose values are not dropped, in order.
    gained: Vec<Gained>,
    /// Each resolves with its shard once that is lost or its value is dropped.
    ends: JoinSet<(u32, End)>,
}

struct Gained {
    index: u32,
    revoked: CancellationToken,
    dropped: CancellationToken,
}

enum End {
    Lost,
    Dropped,
}

impl Driver {
    pub(super) fn new(
        inner: Arc<Inner>,
        key: Key,
        slots: Slots,
        rebalance_interval: Duration,
        events: mpsc::UnboundedSender<ShardEvent>,
    ) -> Self {
        Self {
            inner,
            slots,
            marker: key.derive_pair("shards", fastrand::i32(..)),
            held_marker: None,
            rebalance_interval,
            events,
            gained: Vec::new(),
            ends: JoinSet::new(),
        }
    }

    /// Takes part until it is told to leave or the locks are closed.
    pub(super) async fn run(mut self, leaves: CancellationToken) {
        let inner = Arc::clone(&self.inner);
        let mut over = pin!(async {
            tokio::select! {
                () = leaves.cancelled() => {}
                () = inner.closing() => {}
            }
        });
        while !leaves.is_cancelled() && !inner.is_closed() {
            // Not dropped midway: it may have been granted the marker by then.
            let mut pause = pin!(sleep(self.rebalance().await));
            loop {
                tokio::select! {
                    biased;
                    () = over.as_mut() => break,
                    Some(ended) = self.ends.join_next() => self.ended(ended),
                    () = pause.as_mut() => break,
                }
            }
        }
        self.give_up(0);
        self.give_marker_back();
        while let Some(ended) = self.ends.join_next().await {
            self.ended(ended);
        }
    }

    /// Gives up what is more than the fair share, or takes what lacks. Returns when to look again.
    async fn rebalance(&mut self) -> Duration {
        let interval = self.rebalance_interval.mul_f64(fastrand::f64().mul_add(0.4, 0.8));
        let Some(share) = self.share().await else {
            return interval;
        };
        self.give_up(share);
        while self.gained.len() < share {
            match self.slots.try_acquire().await {
                Ok(Some(permit)) => {
                    if !self.gain(permit) {
                        break;
                    }
                }
                // Others have to give them up first.
                Ok(None) => return interval / LOOKS_WHILE_LACKING,
                Err(error) => {
                    let error: &dyn Error = &error;
                    debug!(target: "latchwork::shards", error, "shards could not be asked for");
                    break;
                }
            }
        }
        interval
    }

    /// How many shards are this worker's; `None` if it is not known who else is there.
    async fn share(&mut self) -> Option<usize> {
        self.held_marker.take_if(|grant| grant.session().is_lost());
        let (reply, announced) = AnnounceReply::to_task();
        let request = AnnounceRequest::new(self.marker, self.held_marker.clone(), reply);
        self.inner.engine.announce(request);
        let Announced { grant, others } = announced.await.ok()?;
        self.held_marker = Some(grant);
        let others = others?;
        let (_, own) = self.marker.as_pair()?;
        Some(fair_share(self.slots.limit() as usize, own, &others))
    }

    /// Wants the newest given up, until so many are left.
    fn give_up(&self, share: usize) {
        let kept = (0..self.gained.len()).filter(|at| !self.gained[*at].revoked.is_cancelled());
        let newest: Vec<_> = kept.skip(share).collect();
        newest.into_iter().rev().for_each(|at| self.revoke(at));
    }

    /// Hands a shard out. One whose last value is still there goes back, and false says so.
    fn gain(&mut self, permit: Permit) -> bool {
        let index = permit.slot();
        if self.gained.iter().any(|gained| gained.index == index) {
            return false;
        }
        let (revoked, dropped) = (CancellationToken::new(), CancellationToken::new());
        let lost = permit.lost();
        self.ends.spawn({
            let dropped = dropped.clone();
            async move {
                tokio::select! {
                    biased;
                    () = dropped.cancelled() => (index, End::Dropped),
                    () = lost => (index, End::Lost),
                }
            }
        });
        let shard = Shard::new(permit, revoked.clone(), dropped.clone());
        self.gained.push(Gained {
            index,
            revoked,
            dropped,
        });
        // If nobody listens any more, it is given up at once.
        let _ = self.events.send(ShardEvent::Gained(shard));
        true
    }

    /// Follows a shard that was lost or whose value was dropped.
    fn ended(&mut self, ended: Result<(u32, End), JoinError>) {
        // The tasks are ours, and do not panic.
        let Ok((index, end)) = ended else { return };
        let Some(at) = self.gained.iter().position(|gained| gained.index == index) else {
            return;
        };
        self.revoke(at);
        match end {
            End::Dropped => drop(self.gained.remove(at)),
            End::Lost => {
                let dropped = self.gained[at].dropped.clone();
                self.ends.spawn(async move {
                    dropped.cancelled().await;
                    (index, End::Dropped)
                });
            }
        }
    }

    /// Wants a shard given up, if that is not so already.
    fn revoke(&self, at: usize) {
        let gained = &self.gained[at];
        if !gained.revoked.is_cancelled() {
            gained.revoked.cancel();
            // Nobody may listen any more.
            let _ = self.events.send(ShardEvent::Lost(gained.index));
        }
    }

    fn give_marker_back(&mut self) {
        if let Some(grant) = self.held_marker.take() {
            let request = ReleaseRequest::new(self.marker, Mode::Shared, grant, ReleaseReply::default());
            self.inner.engine.release(request);
        }
    }
}

/// While shards lack, it is looked for them so many times an interval.
const LOOKS_WHILE_LACKING: u32 = 4;

/// Of so many shards, those of the worker with this number, beside others.
pub(super) fn fair_share(shards: usize, own: i32, others: &[i32]) -> usize {
    let rank = others.iter().filter(|other| **other < own).count();
    let workers = others.len() + 1;
    shards / workers + usize::from(rank < shards % workers)
}
