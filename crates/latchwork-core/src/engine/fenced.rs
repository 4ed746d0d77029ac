use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use super::EngineError;
use crate::{
    clock::Moment,
    fence::{Fence, Term},
    key::Key,
    mode::Mode,
    session::SessionHealth,
};

/// A request for a fenced grant of one key, on a session of its own.
///
/// Before the grant is handed out, in this order: the key is granted; the session is old enough that no lock that was lost
/// by the same event is believed in any more; every transaction of an earlier holder has ended
/// ([`Fence::drained_keys`]); the session holds the grant's own key.
#[derive(Debug)]
#[non_exhaustive]
pub struct FencedRequest {
    /// The key that is wanted.
    pub key: Key,
    /// How it is to be held.
    pub mode: Mode,
    /// For how long the key is left to others each time that it has come free.
    pub campaign_delay: Duration,
    /// When whoever asks will lose interest; [`Moment::NEVER`] if never.
    pub until: Moment,
    /// Where the answer goes.
    pub reply: FencedReply,
}

impl FencedRequest {
    pub(crate) const fn new(key: Key, mode: Mode, campaign_delay: Duration, until: Moment, reply: FencedReply) -> Self {
        Self {
            key,
            mode,
            campaign_delay,
            until,
            reply,
        }
    }
}

type Answer = Result<Option<FencedGrant>, EngineError>;

/// Takes the answer to a [`FencedRequest`]: `Ok(None)` if the key was not free until the end. Dropped unanswered, it
/// answers that the connection was lost.
pub struct FencedReply {
    sender: Option<oneshot::Sender<Answer>>,
    is_preparing: Arc<AtomicBool>,
}

impl FencedReply {
    pub(crate) fn new() -> (Self, oneshot::Receiver<Answer>, Arc<AtomicBool>) {
        let (sender, receiver) = oneshot::channel();
        let is_preparing = Arc::default();
        let this = Self {
            sender: Some(sender),
            is_preparing: Arc::clone(&is_preparing),
        };
        (this, receiver, is_preparing)
    }

    /// Says whether the engine is not able to ask for the key yet, for reasons of its own. A limit that runs out meanwhile
    /// is not told as if others held the key.
    pub fn prepares(&self, is_preparing: bool) {
        self.is_preparing.store(is_preparing, Ordering::Release);
    }

    /// Whether nobody waits for the answer any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Resolves when nobody waits for the answer any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn abandoned(&mut self) {
        if let Some(sender) = &mut self.sender {
            sender.closed().await;
        }
    }

    /// Hands the answer over. A grant that nobody waits for is given up at once.
    pub fn send(mut self, answer: Answer) {
        if let Some(sender) = self.sender.take() {
            // Dropped with its hold, if nobody takes it.
            drop(sender.send(answer));
        }
    }
}

impl Drop for FencedReply {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            drop(sender.send(Err(EngineError::connection_lost())));
        }
    }
}

impl fmt::Debug for FencedReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedReply")
            .field("is_abandoned", &self.is_abandoned())
            .finish()
    }
}

/// A fenced grant, as the engine hands it out.
#[derive(Debug)]
#[non_exhaustive]
pub struct FencedGrant {
    /// The session that the lock lives on, which holds nothing else.
    pub session: Arc<SessionHealth>,
    /// What its transactions prove.
    pub fence: Fence,
    /// Its fencing token.
    pub term: Term,
    pub(crate) hold: FencedHold,
}

impl FencedGrant {
    /// A grant, and what tells the engine that it is given up.
    #[must_use]
    pub fn new(session: Arc<SessionHealth>, fence: Fence, term: Term) -> (Self, FencedRelease) {
        let (sender, receiver) = oneshot::channel();
        let hold = FencedHold(sender);
        let grant = Self {
            session,
            fence,
            term,
            hold,
        };
        (grant, FencedRelease(receiver))
    }
}

type ReleaseAnswer = oneshot::Sender<Result<bool, EngineError>>;

/// Keeps a grant: it is given up with this.
#[derive(Debug)]
pub(crate) struct FencedHold(oneshot::Sender<ReleaseAnswer>);

impl FencedHold {
    /// Gives the grant up, and returns where the server's word on it comes.
    pub(crate) fn release(self) -> oneshot::Receiver<Result<bool, EngineError>> {
        let (sender, receiver) = oneshot::channel();
        // An engine that is gone drops it, which says that the connection was lost.
        drop(self.0.send(sender));
        receiver
    }
}

/// Tells the engine that a grant is given up.
#[derive(Debug)]
pub struct FencedRelease(oneshot::Receiver<ReleaseAnswer>);

impl FencedRelease {
    /// Resolves when the grant is given up, to where to say whether it was held until then, if anybody asks.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again until it has resolved.
    pub async fn given_up(&mut self) -> Option<ReleaseAnswer> {
        (&mut self.0).await.ok()
    }
}
