//! Fenced locks in memory: each on a session of its own, as on a server. There is no transaction to fence, so nothing is
//! drained.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use tokio::{runtime::Handle, time::sleep};

use super::{
    Shared,
    engine::{MemoryEngine, begin_session},
};
use crate::{
    engine::{EngineError, EngineErrorKind, FencedGrant, FencedRelease, FencedRequest},
    fence::{Fence, Term},
    key::Key,
    locks::lock,
    mode::Mode,
    session::SessionHealth,
};

/// How often a key is asked for again.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Waits for a key in a task. Outside of a runtime the request is dropped, which answers it.
pub(super) fn begin(engine: &Weak<MemoryEngine>, shared: &Arc<Shared>, request: FencedRequest) {
    let session = begin_session(shared);
    let (key, mode) = (request.key, request.mode);
    let waits = Waits {
        engine: Weak::clone(engine),
        shared: Arc::clone(shared),
        session,
        key,
        mode,
    };
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(waits.run(request));
    }
}

struct Waits {
    engine: Weak<MemoryEngine>,
    shared: Arc<Shared>,
    session: Arc<SessionHealth>,
    key: Key,
    mode: Mode,
}

impl Waits {
    async fn run(self, mut request: FencedRequest) {
        loop {
            let Some(engine) = self.engine.upgrade().filter(|engine| !engine.is_closed()) else {
                return request.reply.send(Err(EngineError::new(EngineErrorKind::Closed)));
            };
            if request.reply.is_abandoned() {
                return;
            }
            let granted = lock(&self.shared.state).try_grant(self.session.id(), self.key, self.mode);
            if granted {
                lock(&engine.fenced).push(Arc::clone(&self.session));
                drop(engine);
                let term = Term::new(1, self.shared.terms.fetch_add(1, Ordering::AcqRel));
                let fence = Fence::fresh(self.key, self.mode);
                let (grant, release) = FencedGrant::new(Arc::clone(&self.session), fence, term);
                request.reply.send(Ok(Some(grant)));
                return self.hold(release).await;
            }
            drop(engine);
            tokio::select! {
                () = request.reply.abandoned() => return,
                () = sleep(POLL_INTERVAL) => {}
            }
        }
    }

    async fn hold(self, mut release: FencedRelease) {
        let asks = release.given_up().await;
        let mut granted = Vec::new();
        let held = lock(&self.shared.state).release(self.session.id(), self.key, self.mode, &mut granted);
        self.shared.tell(granted);
        if let Some(engine) = self.engine.upgrade() {
            lock(&engine.fenced).retain(|session| session.id() != self.session.id());
        }
        if let Some(asks) = asks {
            // Whoever asked may have gone.
            let _ = asks.send(Ok(held));
        }
    }
}
