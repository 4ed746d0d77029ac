//! The task of a worker.

use std::{
    error::Error,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

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
    revocation: Arc<Revocation>,
    dropped: CancellationToken,
}

/// Wants a shard given up, and tells so once.
struct Revocation {
    index: u32,
    revoked: CancellationToken,
    is_told: AtomicBool,
    events: mpsc::UnboundedSender<ShardEvent>,
}

impl Revocation {
    fn revoke(&self) {
        if !self.is_told.swap(true, Ordering::AcqRel) {
            self.revoked.cancel();
            // Nobody may listen any more.
            let _ = self.events.send(ShardEvent::Lost(self.index));
        }
    }
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
        // Held until all others were asked for.
        let mut aside = Vec::new();
        while self.gained.len() < share {
            match self.slots.try_acquire().await {
                Ok(Some(permit)) => aside.extend(self.gain(permit)),
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
        let kept = self.gained.iter().map(|gained| &gained.revocation);
        let kept: Vec<_> = kept.filter(|kept| !kept.revoked.is_cancelled()).collect();
        kept.into_iter().skip(share).rev().for_each(|newest| newest.revoke());
    }

    /// Hands a shard out. One whose last value is still there comes back.
    fn gain(&mut self, permit: Permit) -> Option<Permit> {
        let index = permit.slot();
        if self.gained.iter().any(|gained| gained.revocation.index == index) {
            return Some(permit);
        }
        let (revoked, dropped) = (CancellationToken::new(), CancellationToken::new());
        let revocation = Arc::new(Revocation {
            index,
            revoked: revoked.clone(),
            is_told: AtomicBool::new(false),
            events: self.events.clone(),
        });
        let lost = permit.lost();
        self.ends.spawn({
            let (dropped, revocation) = (dropped.clone(), Arc::clone(&revocation));
            async move {
                tokio::select! {
                    biased;
                    () = dropped.cancelled() => (index, End::Dropped),
                    () = lost => {
                        // At once, whatever the driver waits for.
                        revocation.revoke();
                        (index, End::Lost)
                    }
                }
            }
        });
        let shard = Shard::new(permit, revoked, dropped.clone());
        self.gained.push(Gained { revocation, dropped });
        // If nobody listens any more, it is given up at once.
        let _ = self.events.send(ShardEvent::Gained(shard));
        None
    }

    /// Follows a shard that was lost or whose value was dropped.
    fn ended(&mut self, ended: Result<(u32, End), JoinError>) {
        // The tasks are ours, and do not panic.
        let Ok((index, end)) = ended else { return };
        let Some(at) = self.gained.iter().position(|gained| gained.revocation.index == index) else {
            return;
        };
        self.gained[at].revocation.revoke();
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

    fn give_marker_back(&mut self) {
        if let Some(grant) = self.held_marker.take() {
            let request = ReleaseRequest::new(self.marker, Mode::Shared, grant, ReleaseReply::default());
            self.inner.engine.release(request);
        }
    }
}

impl Drop for Driver {
    /// Midway, if its runtime ends: the locks may live on.
    fn drop(&mut self) {
        self.give_up(0);
        self.give_marker_back();
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
