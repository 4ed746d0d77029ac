//! The task of a candidate.

use std::{error::Error, future::pending, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use super::{
    LeaderState, Leading,
    office::{Office, Wishes},
};
use crate::{
    AcquireError, HoldState,
    fence::{FencedBuilder, FencedGuard},
    key::Key,
    locks::Inner,
    pause,
};

pub(super) struct Campaign {
    pub(super) inner: Arc<Inner>,
    pub(super) office: Arc<Office>,
    pub(super) key: Key,
    pub(super) campaign_delay: Duration,
    pub(super) resign_delay: Duration,
    pub(super) drain_limit: Option<Duration>,
}

/// How a leadership ends.
enum End {
    Lost,
    Resigned,
}

impl Campaign {
    /// Campaigns until the candidate is closed.
    pub(super) async fn run(self) {
        let _closes = Closes(Arc::clone(&self.office));
        let mut wishes = self.office.wishes();
        let (mut failures, mut leaderships) = (0, 0);
        while self.is_eligible(&mut wishes).await {
            let granted = tokio::select! {
                biased;
                // First: what is granted at the same moment is not begun.
                () = self.unwanted(&mut wishes) => continue,
                granted = self.acquire() => granted,
            };
            match granted {
                Ok(guard) => {
                    failures = 0;
                    leaderships += 1;
                    self.office.failed(None);
                    let end = self.lead(guard, leaderships, &mut wishes).await;
                    // One that was to be given up may have been lost before.
                    let was_resigned = wishes.borrow().resigned >= leaderships;
                    if was_resigned || matches!(end, End::Resigned) {
                        // Or else it would come before those who leave a vacant leadership to others for a while.
                        self.hold_off(self.resign_delay, &mut wishes).await;
                    }
                }
                Err(AcquireError::Closed) => return,
                Err(error) => {
                    failures += 1;
                    self.failed(error, failures);
                    self.hold_off(pause::after_failures(failures), &mut wishes).await;
                }
            }
        }
    }

    /// Waits until the candidate may campaign; false if it is closed.
    async fn is_eligible(&self, wishes: &mut watch::Receiver<Wishes>) -> bool {
        tokio::select! {
            biased;
            () = self.inner.closing() => false,
            // The office has the other end.
            wished = wishes.wait_for(|wishes| wishes.eligible || wishes.closed) => {
                wished.is_ok_and(|wishes| !wishes.closed)
            }
        }
    }

    /// Resolves when the candidate may campaign no more.
    async fn unwanted(&self, wishes: &mut watch::Receiver<Wishes>) {
        tokio::select! {
            () = self.inner.closing() => {}
            _ = wishes.wait_for(|wishes| !wishes.eligible || wishes.closed) => {}
        }
    }

    /// Lets time pass, for as long as the candidate may campaign.
    async fn hold_off(&self, time: Duration, wishes: &mut watch::Receiver<Wishes>) {
        tokio::select! {
            () = sleep(time) => {}
            () = self.unwanted(wishes) => {}
        }
    }

    async fn acquire(&self) -> Result<FencedGuard, AcquireError> {
        FencedBuilder::new(Arc::clone(&self.inner), Ok(self.key))
            .with_campaign_delay(self.campaign_delay)
            .without_limit()
            .await
    }

    fn failed(&self, error: AcquireError, failures: u32) {
        let shown: &dyn Error = &error;
        let key = tracing::field::display(self.key);
        warn!(target: "latchwork::leader", key, failures, error = shown, "a campaign has failed");
        self.office.failed(Some(error));
    }

    /// Leads, from a grant to its end and until the work has returned.
    async fn lead(&self, guard: FencedGuard, number: u64, wishes: &mut watch::Receiver<Wishes>) -> End {
        let leading = Leading::new(number, &guard);
        // Before the guard, if this is dropped midway.
        let _ends = leading.end_on_drop();
        let (key, term) = (tracing::field::display(self.key), leading.term());
        info!(target: "latchwork::leader", key = &key, %term, "leads");
        self.office.leads(&leading, LeaderState::Leader(term));
        let end = self.until_ended(&leading, wishes).await;
        leading.end();
        // One that never comes is no limit.
        let drained_by = self.drain_limit.and_then(|limit| Instant::now().checked_add(limit));
        match end {
            End::Lost => {
                warn!(target: "latchwork::leader", key, %term, "leads no more: the lock was lost");
                self.office.rests(LeaderState::Lost(term));
                drop(guard);
            }
            End::Resigned => {
                info!(target: "latchwork::leader", key, %term, "resigns");
                self.office.rests(LeaderState::Resigned(term));
                tokio::select! {
                    () = leading.drained() => {}
                    // There is nothing left to keep.
                    () = guard.lost() => {}
                    () = until(drained_by) => {}
                }
                if let Err(error) = guard.release().await {
                    let error: &dyn Error = &error;
                    warn!(target: "latchwork::leader", %term, error, "a leadership was not given up in order");
                }
            }
        }
        self.office.is_over(&leading);
        self.drain(&leading, drained_by).await;
        self.office.rests(LeaderState::Follower);
        end
    }

    /// Follows the session until the leadership is lost or is to be given up.
    async fn until_ended(&self, leading: &Leading, wishes: &mut watch::Receiver<Wishes>) -> End {
        let resigned = |wishes: &Wishes| wishes.resigned >= leading.number() || !wishes.eligible || wishes.closed;
        let mut state = HoldState::Held;
        loop {
            state = tokio::select! {
                biased;
                state = leading.session().left(state) => state,
                // The office has the other end.
                _ = wishes.wait_for(resigned) => return End::Resigned,
                () = self.inner.closing() => return End::Resigned,
            };
            let term = leading.term();
            match state {
                HoldState::Lost => return End::Lost,
                HoldState::Suspended => {
                    warn!(target: "latchwork::leader", key = %self.key, %term, "may not believe that it leads");
                    self.office.leads(leading, LeaderState::Suspended(term));
                }
                HoldState::Held => {
                    info!(target: "latchwork::leader", key = %self.key, %term, "leads again");
                    self.office.leads(leading, LeaderState::Leader(term));
                }
            }
        }
    }

    /// Waits for the work, and tells if it has not returned in time.
    async fn drain(&self, leading: &Leading, by: Option<Instant>) {
        tokio::select! {
            biased;
            () = leading.drained() => return,
            () = until(by) => {}
        }
        let (key, term) = (tracing::field::display(self.key), leading.term());
        let limit = self.drain_limit;
        warn!(target: "latchwork::leader", key, %term, ?limit, "work has not returned in time");
        self.office.rests(LeaderState::Undrained(term));
        leading.drained().await;
    }
}

/// Resolves at a moment, or never.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

/// Says that the candidate has ended, even if its task was dropped with its runtime.
struct Closes(Arc<Office>);

impl Drop for Closes {
    fn drop(&mut self) {
        if let Some(leading) = self.0.leading() {
            leading.end();
        }
        self.0.rests(LeaderState::Closed);
        self.0.all_is_over();
    }
}
