//! The task of a worker.

use std::{error::Error, pin::pin, sync::Arc, time::Duration};

use tokio::{
    task::{JoinError, JoinSet},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Shard, desk::Desk};
use crate::{
    AcquireError,
    engine::{AnnounceReply, AnnounceRequest, Announced, EngineError, Grant, ReleaseReply, ReleaseRequest},
    key::Key,
    locks::Inner,
    mode::Mode,
    pause,
    slots::{Permit, Slots},
};

pub(super) struct Driver {
    inner: Arc<Inner>,
    slots: Slots,
    /// What tells the worker from others.
    number: i32,
    /// What it shows itself by; its number is the second half.
    marker: Key,
    held_marker: Option<Grant>,
    rebalance_interval: Duration,
    desk: Arc<Desk>,
    /// Those that were gained and whose values are not dropped.
    gained: Vec<Gained>,
    /// Each resolves with its shard once that is lost or its value is dropped.
    ends: JoinSet<(u32, End)>,
    /// How often in a row it has failed.
    failures: u32,
}

struct Gained {
    index: u32,
    dropped: CancellationToken,
}

enum End {
    Lost,
    Dropped,
}

/// What a worker has of its share.
enum Share {
    Full,
    /// Others have to give some up first.
    Lacks,
}

impl Driver {
    pub(super) fn new(
        inner: Arc<Inner>,
        key: Key,
        slots: Slots,
        rebalance_interval: Duration,
        desk: Arc<Desk>,
    ) -> Self {
        let number = fastrand::i32(..);
        Self {
            inner,
            slots,
            number,
            marker: key.derive_pair("shards", number),
            held_marker: None,
            rebalance_interval,
            desk,
            gained: Vec::new(),
            ends: JoinSet::new(),
            failures: 0,
        }
    }

    /// Takes part until it is told to leave or the locks are closed.
    pub(super) async fn run(mut self, leaves: CancellationToken) {
        let (inner, desk) = (Arc::clone(&self.inner), Arc::clone(&self.desk));
        let mut over = pin!(async {
            tokio::select! {
                () = leaves.cancelled() => {}
                () = inner.closing() => {}
            }
        });
        while !leaves.is_cancelled() && !inner.is_closed() {
            let pause = {
                let mut rebalance = pin!(self.rebalance());
                tokio::select! {
                    biased;
                    () = over.as_mut() => {
                        // At once, whatever the server does.
                        desk.leave();
                        // Not dropped midway: it may have been granted the marker by then.
                        rebalance.await;
                        break;
                    }
                    pause = rebalance.as_mut() => pause,
                }
            };
            let mut pause = pin!(sleep(pause));
            loop {
                tokio::select! {
                    biased;
                    () = over.as_mut() => break,
                    Some(ended) = self.ends.join_next() => self.ended(ended),
                    () = pause.as_mut() => break,
                }
            }
        }
        desk.leave();
        self.give_marker_back();
        while let Some(ended) = self.ends.join_next().await {
            self.ended(ended);
        }
    }

    /// Gives up what is more than the fair share, or takes what lacks. Returns when to look again.
    async fn rebalance(&mut self) -> Duration {
        let interval = self.rebalance_interval.mul_f64(fastrand::f64().mul_add(0.4, 0.8));
        match self.seek_share().await {
            Ok(share) => {
                self.failures = 0;
                self.desk.failed(None);
                match share {
                    Share::Full => interval,
                    Share::Lacks => interval / LOOKS_WHILE_LACKING,
                }
            }
            Err(AcquireError::Closed) => interval,
            Err(error) => {
                self.failures += 1;
                let (shown, key): (&dyn Error, _) = (&error, tracing::field::display(self.marker));
                let failures = self.failures;
                warn!(target: "latchwork::shards", key, failures, error = shown, "shards could not be shared");
                self.desk.failed(Some(error));
                interval.max(pause::after_failures(failures))
            }
        }
    }

    async fn seek_share(&mut self) -> Result<Share, AcquireError> {
        let share = self.share().await;
        let share = share.map_err(|error| AcquireError::from_engine(self.marker, &error))?;
        self.desk.keep(share);
        // Held until all others were asked for.
        let mut aside = Vec::new();
        while self.gained.len() < share && !self.desk.leaves() {
            match self.slots.try_acquire().await? {
                Some(permit) => aside.extend(self.gain(permit)),
                None => return Ok(Share::Lacks),
            }
        }
        Ok(Share::Full)
    }

    /// How many shards are this worker's.
    async fn share(&mut self) -> Result<usize, EngineError> {
        self.held_marker.take_if(|grant| grant.session().is_lost());
        let (reply, announced) = AnnounceReply::to_task();
        let request = AnnounceRequest::new(self.marker, self.held_marker.clone(), reply);
        self.inner.engine.announce(request);
        let announced = announced.await.unwrap_or_else(|_| Err(EngineError::connection_lost()));
        let Announced { grant, others } = announced?;
        self.held_marker = Some(grant);
        Ok(fair_share(self.slots.limit() as usize, self.number, &others?))
    }

    /// Hands a shard out. One whose last value is still there comes back.
    fn gain(&mut self, permit: Permit) -> Option<Permit> {
        let index = permit.slot();
        if self.gained.iter().any(|gained| gained.index == index) {
            return Some(permit);
        }
        let (revoked, dropped) = (CancellationToken::new(), CancellationToken::new());
        let lost = permit.lost();
        self.ends.spawn({
            let (dropped, desk) = (dropped.clone(), Arc::clone(&self.desk));
            async move {
                tokio::select! {
                    biased;
                    () = dropped.cancelled() => (index, End::Dropped),
                    () = lost => {
                        // At once, whatever the driver waits for.
                        desk.lose(index);
                        (index, End::Lost)
                    }
                }
            }
        });
        let shard = Shard::new(permit, revoked, dropped.clone());
        self.gained.push(Gained { index, dropped });
        self.desk.gain(shard);
        None
    }

    /// Follows a shard that was lost or whose value was dropped.
    fn ended(&mut self, ended: Result<(u32, End), JoinError>) {
        // The tasks are ours, and do not panic.
        let Ok((index, end)) = ended else { return };
        let Some(at) = self.gained.iter().position(|gained| gained.index == index) else {
            return;
        };
        self.desk.lose(index);
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
        self.desk.leave();
        self.give_marker_back();
        self.desk.end();
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
