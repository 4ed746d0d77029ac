//! What a candidate and its campaign share: where it stands, and what is wanted of it.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use tokio::sync::{broadcast, watch};

use super::{LeaderState, Leading, Transitions, inside::is_inside};
use crate::{AcquireError, locks::lock};

#[derive(Debug)]
pub(super) struct Office {
    seat: Mutex<Seat>,
    /// Where the candidate stands, for who wants to know the latest only.
    latest: watch::Sender<LeaderState>,
    /// The number of the last leadership that was given up altogether.
    over: watch::Sender<u64>,
    wishes: watch::Sender<Wishes>,
}

#[derive(Debug)]
struct Seat {
    state: LeaderState,
    /// Until it is lost or resigned.
    leading: Option<Leading>,
    /// The number of the last one.
    last: u64,
    /// Nobody leads any more.
    closed: bool,
    transitions: broadcast::Sender<LeaderState>,
    failure: Option<Arc<AcquireError>>,
}

/// What is wanted of a candidate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    pub(super) eligible: bool,
    /// The number of the last leadership that is to be given up.
    pub(super) resigned: u64,
    pub(super) closed: bool,
}

impl Office {
    pub(super) fn new(eligible: bool) -> Self {
        let wishes = Wishes {
            eligible,
            resigned: 0,
            closed: false,
        };
        let seat = Seat {
            state: LeaderState::Follower,
            leading: None,
            last: 0,
            closed: false,
            transitions: broadcast::Sender::new(Transitions::KEPT),
            failure: None,
        };
        Self {
            seat: Mutex::new(seat),
            latest: watch::Sender::new(LeaderState::Follower),
            over: watch::Sender::new(0),
            wishes: watch::Sender::new(wishes),
        }
    }

    pub(super) fn state(&self) -> LeaderState {
        lock(&self.seat).state
    }

    /// The leadership of this moment, unless it is lost or resigned.
    pub(super) fn leading(&self) -> Option<Leading> {
        lock(&self.seat).leading.clone()
    }

    pub(super) fn watch(&self) -> watch::Receiver<LeaderState> {
        self.latest.subscribe()
    }

    /// The state, and the transitions that come after it.
    pub(super) fn subscribe(&self) -> (LeaderState, broadcast::Receiver<LeaderState>) {
        let seat = lock(&self.seat);
        (seat.state, seat.transitions.subscribe())
    }

    /// As [`subscribe`](Self::subscribe), and how many of the transitions before that `coming` has not read.
    pub(super) fn subscribe_anew(
        &self,
        coming: &broadcast::Receiver<LeaderState>,
    ) -> (u64, LeaderState, broadcast::Receiver<LeaderState>) {
        let seat = lock(&self.seat);
        (coming.len() as u64, seat.state, seat.transitions.subscribe())
    }

    pub(super) fn failure(&self) -> Option<Arc<AcquireError>> {
        lock(&self.seat).failure.clone()
    }

    pub(super) fn failed(&self, failure: Option<AcquireError>) {
        lock(&self.seat).failure = failure.map(Arc::new);
    }

    /// Moves to a state of a leadership that goes on.
    pub(super) fn leads(&self, leading: &Leading, state: LeaderState) {
        self.move_to(state, Some(leading.clone()));
    }

    /// Moves to a state without a leadership.
    pub(super) fn rests(&self, state: LeaderState) {
        self.move_to(state, None);
    }

    fn move_to(&self, state: LeaderState, leading: Option<Leading>) {
        let mut seat = lock(&self.seat);
        if let Some(leading) = leading.as_ref().filter(|_| seat.closed) {
            // Nobody has seen it yet, or it has ended before.
            leading.end();
        }
        seat.state = state;
        seat.last = leading.as_ref().map_or(seat.last, Leading::number);
        seat.leading = leading;
        // Nobody may be there to be told.
        let _ = seat.transitions.send(state);
        self.latest.send_replace(state);
    }

    /// Says that a leadership was given up altogether.
    pub(super) fn is_over(&self, leading: &Leading) {
        self.over.send_replace(leading.number());
    }

    /// Says so of all leaderships that there ever will be.
    pub(super) fn all_is_over(&self) {
        self.over.send_replace(u64::MAX);
    }

    /// What is wanted, and each change of it.
    pub(super) fn wishes(&self) -> watch::Receiver<Wishes> {
        self.wishes.subscribe()
    }

    pub(super) fn set_eligible(&self, eligible: bool) {
        self.wishes.send_if_modified(|wishes| {
            let changes = wishes.eligible != eligible;
            wishes.eligible = eligible;
            changes
        });
    }

    pub(super) fn close(&self) {
        let mut seat = lock(&self.seat);
        // One that the campaign is about to come to ends as it begins.
        seat.closed = true;
        let leading = seat.leading.clone();
        drop(seat);
        if let Some(leading) = leading {
            leading.end();
        }
        self.wishes.send_modify(|wishes| wishes.closed = true);
    }

    /// Wants the leadership of this moment to be given up, and resolves when the last one is, whoever wanted that.
    pub(super) fn resign(self: &Arc<Self>) -> impl Future<Output = ()> + Send + use<> {
        let seat = lock(&self.seat);
        let (last, leading) = (seat.last, seat.leading.clone());
        drop(seat);
        if let Some(leading) = leading {
            self.end(&leading);
        }
        self.given_up(last)
    }

    /// Wants a leadership to be given up, and resolves when it is.
    pub(super) fn resign_from(self: &Arc<Self>, leading: &Leading) -> impl Future<Output = ()> + Send + use<> {
        self.end(leading);
        self.given_up(leading.number())
    }

    fn end(&self, leading: &Leading) {
        // At once, not when the campaign comes to it.
        leading.end();
        self.wishes
            .send_modify(|wishes| wishes.resigned = wishes.resigned.max(leading.number()));
    }

    fn given_up(self: &Arc<Self>, number: u64) -> impl Future<Output = ()> + Send + use<> {
        let (office, mut over) = (Arc::clone(self), self.over.subscribe());
        async move {
            // The lock is kept for the work, which would wait for itself here.
            if is_inside(&office) {
                return;
            }
            // Nobody is there any more who could lead.
            let _ = over.wait_for(|last| *last >= number).await;
        }
    }

    /// Resolves with a leadership that is believed in; `None` if the candidate is closed.
    pub(super) async fn elected(&self) -> Option<Leading> {
        let mut latest = self.latest.subscribe();
        loop {
            if *latest.borrow_and_update() == LeaderState::Closed {
                return None;
            }
            if let Some(leading) = self.leading() {
                let confirmed = tokio::select! {
                    // No transition tells of a doubt that was over before the campaign came to it.
                    confirmed = leading.confirmed() => confirmed.is_ok(),
                    _ = latest.changed() => continue,
                };
                if confirmed {
                    return Some(leading);
                }
            }
            // Its sender is here.
            let _ = latest.changed().await;
        }
    }

    /// Resolves when the campaign has ended; inside the work that it waits for, at once.
    pub(super) async fn closed(self: &Arc<Self>) {
        if is_inside(self) {
            return;
        }
        let mut latest = self.latest.subscribe();
        // Its sender is here.
        let _ = latest.wait_for(|state| *state == LeaderState::Closed).await;
    }
}
