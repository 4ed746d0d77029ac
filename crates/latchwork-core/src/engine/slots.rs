//! What the pools of slots ask of an engine.

use std::{
    fmt::{self, Debug},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::{EngineError, Grant};
use crate::{key::Key, slots::Pool};

/// A request for some of the free slots of a pool.
#[derive(Debug)]
#[non_exhaustive]
pub struct SlotsRequest {
    /// Whether to wait for one poll interval, and for an end of an outage, before it is asked.
    pub later: bool,
    /// Says what to ask for when it is asked, and takes the answer.
    pub reply: SlotsReply,
}

impl SlotsRequest {
    pub(crate) const fn new(later: bool, reply: SlotsReply) -> Self {
        Self { later, reply }
    }
}

/// What a [`SlotsRequest`] asks for: up to `want` of the candidates, exclusive, in the order given.
#[derive(Debug)]
#[non_exhaustive]
pub struct Candidates {
    /// The keys to choose from. Keys behind the last one that is needed must not be tried.
    pub keys: Vec<Key>,
    /// How many are wanted; with none, the request needs no word to the server.
    pub want: usize,
}

impl Candidates {
    pub(crate) const fn none() -> Self {
        Self {
            keys: Vec::new(),
            want: 0,
        }
    }
}

/// Takes the answer to a [`SlotsRequest`]. Dropped unanswered, it answers
/// [`ConnectionLost`](super::EngineErrorKind::ConnectionLost).
pub struct SlotsReply {
    pool: Option<Arc<Pool>>,
    flight: u64,
}

impl SlotsReply {
    pub(crate) const fn new(pool: Arc<Pool>, flight: u64) -> Self {
        Self {
            pool: Some(pool),
            flight,
        }
    }

    /// Says what to ask for now. The answer is about these keys; they are asked for nowhere else meanwhile. A key may be
    /// among them whose [`ordered`](Grant::ordered) release the engine was given a moment ago: what it was given before
    /// this call must reach the server before what is asked for.
    pub fn candidates(&self) -> Candidates {
        self.pool
            .as_ref()
            .map_or_else(Candidates::none, |pool| pool.candidates(self.flight))
    }

    /// Hands over what was granted, each with its place in the list of candidates.
    pub fn send(mut self, answer: Result<Vec<(usize, Grant)>, EngineError>) {
        if let Some(pool) = self.pool.take() {
            pool.answered(self.flight, answer);
        }
    }
}

impl Drop for SlotsReply {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.answered(self.flight, Err(EngineError::connection_lost()));
        }
    }
}

impl Debug for SlotsReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotsReply")
            .field("flight", &self.flight)
            .finish_non_exhaustive()
    }
}

/// A request to announce a pool of slots.
#[derive(Debug)]
#[non_exhaustive]
pub struct AnnounceRequest {
    /// A pair whose first half names the pool, and whose second half is the limit that this process gives it. It is to
    /// be held shared, and to be found by others who look for the first half.
    pub marker: Key,
    /// What holds the marker already, if anything does; then only the others are asked for.
    pub held: Option<Grant>,
    /// Where the answer goes.
    pub reply: AnnounceReply,
}

impl AnnounceRequest {
    pub(crate) const fn new(marker: Key, held: Option<Grant>, reply: AnnounceReply) -> Self {
        Self { marker, held, reply }
    }
}

/// Takes the answer to an [`AnnounceRequest`]. Dropped unanswered, it answers
/// [`ConnectionLost`](super::EngineErrorKind::ConnectionLost).
#[derive(Debug)]
pub struct AnnounceReply {
    to: Announcer,
}

#[derive(Debug)]
enum Announcer {
    Pool(Arc<Pool>),
    Task(oneshot::Sender<Result<Announced, EngineError>>),
}

impl AnnounceReply {
    pub(crate) const fn new(pool: Arc<Pool>) -> Self {
        Self {
            to: Announcer::Pool(pool),
        }
    }

    pub(crate) fn to_task() -> (Self, oneshot::Receiver<Result<Announced, EngineError>>) {
        let (sender, announced) = oneshot::channel();
        let to = Announcer::Task(sender);
        (Self { to }, announced)
    }

    /// Whether it is a worker's, and not a pool's.
    #[cfg(test)]
    pub(crate) const fn is_to_task(&self) -> bool {
        matches!(self.to, Announcer::Task(_))
    }

    /// Hands over what holds the marker now, and the other limits that processes have announced for the pool; or why
    /// nothing holds it.
    pub fn send(self, answer: Result<Announced, EngineError>) {
        match (self.to, answer) {
            (Announcer::Pool(pool), Ok(announced)) => pool.announced(announced),
            // A pool does its work without.
            (Announcer::Pool(_), Err(_)) => {}
            // Whoever asked may have gone.
            (Announcer::Task(sender), answer) => drop(sender.send(answer)),
        }
    }
}

/// The answer to an [`AnnounceRequest`].
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "engines build it")]
pub struct Announced {
    /// What holds the announcement.
    pub grant: Grant,
    /// The other second halves that processes have announced for the first half, or why they could not be asked for.
    pub others: Result<Vec<i32>, EngineError>,
}
