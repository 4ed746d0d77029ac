//! The ledger of ticks: the way to the session that it is kept on.
//!
//! Not one of the lock sessions: a claim is a commit, which a table that somebody has locked, or a synchronous standby that
//! is away, may hold up, and with it all locks of the process.

mod session;

use std::sync::{Arc, Mutex};

use latchwork_core::engine::LedgerRequest;
use tokio::sync::mpsc;

use crate::{shared::Shared, sync::lock};

use session::LedgerSession;

/// Opened when somebody asks, and closed when nobody has asked for a while.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Option<mpsc::UnboundedSender<LedgerRequest>>>);

impl Ledger {
    /// Hands a request to the session, or to a new one.
    pub(crate) fn ask(&self, shared: &Arc<Shared>, mut request: LedgerRequest) {
        let mut session = lock(&self.0);
        if let Some(requests) = &*session {
            match requests.send(request) {
                Ok(()) => return,
                // It has just ended.
                Err(unsent) => request = unsent.0,
            }
        }
        let (requests, receiver) = mpsc::unbounded_channel();
        // Its receiver is here. Where it does not come to run, the request is dropped, which answers it.
        let _ = requests.send(request);
        *session = Some(requests);
        drop(session);
        shared.spawn(LedgerSession::new(Arc::clone(shared), receiver).run());
    }

    /// Has the session end when it has answered what it was asked.
    pub(crate) fn close(&self) {
        drop(lock(&self.0).take());
    }
}
