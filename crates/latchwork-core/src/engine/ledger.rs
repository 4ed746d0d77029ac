use std::fmt;

use tokio::sync::oneshot;

use super::EngineError;
use crate::{
    key::Key,
    once::{LastRun, RunEnd, TickAnswer, TickClaim},
};

/// A request for the ledger of ticks. An engine carries them out in the order in which they come.
///
/// None of them may be held up by locks, or hold these up.
#[derive(Debug)]
#[non_exhaustive]
pub enum LedgerRequest {
    /// Claims a tick.
    Claim(ClaimRequest),
    /// Notes how a run has ended.
    Record(RecordRequest),
    /// Reads the last run of a job.
    Read(ReadRequest),
}

impl LedgerRequest {
    /// Answers the request with an error.
    pub fn fail(self, error: EngineError) {
        match self {
            Self::Claim(request) => request.reply.send(Err(error)),
            Self::Record(request) => request.reply.send(Err(error)),
            Self::Read(request) => request.reply.send(Err(error)),
        }
    }
}

/// Claims a tick, on a transaction of its own.
#[derive(Debug)]
#[non_exhaustive]
pub struct ClaimRequest {
    /// What is claimed.
    pub claim: TickClaim,
    /// Where the answer goes.
    pub reply: LedgerReply<TickAnswer>,
}

/// Notes how the run of a claim has ended. Answered with whether the claim was still the last one.
#[derive(Debug)]
#[non_exhaustive]
pub struct RecordRequest {
    /// The key of the job in the ledger.
    pub key: Key,
    /// The number of the claim.
    pub number: i64,
    /// How its run has ended.
    pub end: RunEnd,
    /// Where the answer goes.
    pub reply: LedgerReply<bool>,
}

impl RecordRequest {
    /// The one statement that does it. It has no parameters; it answers one row with one text if the claim was still the
    /// last one, and else none.
    #[must_use]
    pub fn statement(&self) -> String {
        crate::once::record_statement(self.key, self.number, self.end)
    }
}

/// Reads the last run of a job.
#[derive(Debug)]
#[non_exhaustive]
pub struct ReadRequest {
    /// The key of the job in the ledger.
    pub key: Key,
    /// Where the answer goes: `None` if the ledger does not know the job.
    pub reply: LedgerReply<Option<LastRun>>,
}

type Answer<T> = Result<T, EngineError>;

impl LedgerRequest {
    pub(crate) fn claim(claim: TickClaim) -> (Self, oneshot::Receiver<Answer<TickAnswer>>) {
        let (reply, answer) = LedgerReply::new();
        (Self::Claim(ClaimRequest { claim, reply }), answer)
    }

    pub(crate) fn record(key: Key, number: i64, end: RunEnd) -> (Self, oneshot::Receiver<Answer<bool>>) {
        let (reply, answer) = LedgerReply::new();
        let request = RecordRequest {
            key,
            number,
            end,
            reply,
        };
        (Self::Record(request), answer)
    }

    pub(crate) fn read(key: Key) -> (Self, oneshot::Receiver<Answer<Option<LastRun>>>) {
        let (reply, answer) = LedgerReply::new();
        (Self::Read(ReadRequest { key, reply }), answer)
    }
}

/// Takes the answer to a [`LedgerRequest`]. Dropped unanswered, it answers that the connection was lost.
pub struct LedgerReply<T>(oneshot::Sender<Answer<T>>);

impl<T> LedgerReply<T> {
    fn new() -> (Self, oneshot::Receiver<Answer<T>>) {
        let (sender, answer) = oneshot::channel();
        (Self(sender), answer)
    }

    /// Hands the answer over.
    pub fn send(self, answer: Result<T, EngineError>) {
        // Whoever asked may have gone.
        let _ = self.0.send(answer);
    }
}

impl<T> fmt::Debug for LedgerReply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LedgerReply").finish_non_exhaustive()
    }
}
