//! Rate limits on PostgreSQL: one row for each key and its quotas, one statement for all that is asked at the same time.

mod asked;
mod batch;
mod inbox;
mod options;
mod session;
mod sql;
mod statements;
mod sweep;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use latchwork_core::{
    Clock,
    engine::{EngineError, EngineErrorKind},
    rate::{ChargeRequest, RateEngine},
};
use tokio::sync::oneshot;

pub use options::RateOptions;

use crate::shared::Shared;
use session::RateSession;

/// The engine of the rate limits: the way to the task that owns their session.
pub(crate) struct PostgresRates {
    session: Arc<RateSession>,
    shared: Arc<Shared>,
    is_closed: AtomicBool,
}

impl PostgresRates {
    /// Begins a session, which connects by itself.
    pub(crate) fn begin(shared: &Arc<Shared>, options: &RateOptions) -> Self {
        let session = Arc::new(RateSession::new(options));
        shared.runtime.spawn(Arc::clone(&session).run(Arc::clone(shared)));
        Self {
            session,
            shared: Arc::clone(shared),
            is_closed: AtomicBool::new(false),
        }
    }
}

impl RateEngine for PostgresRates {
    fn charge(&self, request: ChargeRequest) {
        if self.is_closed.load(Ordering::Acquire) {
            return request.reply.send(Err(EngineError::new(EngineErrorKind::Closed)));
        }
        self.session.inbox.push(request);
    }

    fn close(&self, done: oneshot::Sender<()>) {
        self.is_closed.store(true, Ordering::Release);
        self.session.inbox.close(Some(done));
    }

    fn clock(&self) -> Clock {
        self.shared.clock.clone()
    }
}

impl Drop for PostgresRates {
    fn drop(&mut self) {
        self.session.inbox.close(None);
    }
}

impl fmt::Debug for PostgresRates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresRates")
            .field("identity", &format_args!("{}", self.shared.identity))
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
