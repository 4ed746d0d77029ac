use std::fmt;

use tokio::sync::oneshot;

use super::EngineError;
use crate::{key::Key, leader::Incumbent};

/// Asks who holds a key exclusively, in whichever process.
#[derive(Debug)]
#[non_exhaustive]
pub struct IncumbentRequest {
    /// The key.
    pub key: Key,
    /// Where the answer goes.
    pub reply: IncumbentReply,
}

pub(crate) type IncumbentAnswer = Result<Option<Incumbent>, EngineError>;

impl IncumbentRequest {
    pub(crate) fn new(key: Key) -> (Self, oneshot::Receiver<IncumbentAnswer>) {
        let (sender, answer) = oneshot::channel();
        let reply = IncumbentReply(sender);
        (Self { key, reply }, answer)
    }
}

/// Takes the answer to an [`IncumbentRequest`]: `None` if nobody holds the key. Dropped unanswered, it answers that the
/// connection was lost.
pub struct IncumbentReply(oneshot::Sender<IncumbentAnswer>);

impl IncumbentReply {
    /// Hands the answer over.
    pub fn send(self, answer: Result<Option<Incumbent>, EngineError>) {
        // Whoever asked may have gone.
        let _ = self.0.send(answer);
    }
}

impl fmt::Debug for IncumbentReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IncumbentReply").finish_non_exhaustive()
    }
}
