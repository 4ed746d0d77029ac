//! Fenced locks in memory: each on a session of its own, as on a server. There is no transaction to fence, so nothing is
//! drained.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, SystemTime},
};

use tokio::{runtime::Handle, time::sleep};

use super::{
    Shared,
    engine::{MemoryEngine, begin_session, identity},
};
use crate::{
    clock::Clock,
    engine::{EngineError, EngineErrorKind, FencedGrant, FencedRelease, FencedRequest},
    fence::{Fence, Term},
    key::Key,
    leader::Incumbent,
    locks::lock,
    mode::Mode,
    session::SessionHealth,
};

/// How often a key is asked for again.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Waits for a key in a task. Outside of a runtime the request is dropped, which answers it.
pub(super) fn begin(engine: &Weak<MemoryEngine>, shared: &Arc<Shared>, request: FencedRequest) {
    let session = begin_session(shared);
    let waits = Waits {
        engine: Weak::clone(engine),
        place: Place::new(shared, session.id(), request.key),
        shared: Arc::clone(shared),
        session,
        key: request.key,
        mode: request.mode,
        campaign_delay: request.campaign_delay,
    };
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(waits.run(request));
    }
}

struct Waits {
    engine: Weak<MemoryEngine>,
    place: Place,
    shared: Arc<Shared>,
    session: Arc<SessionHealth>,
    key: Key,
    mode: Mode,
    campaign_delay: Duration,
}

impl Waits {
    async fn run(self, mut request: FencedRequest) {
        loop {
            if !self.until_vacant(&mut request).await {
                // Whoever asked may have gone.
                return request.reply.send(Ok(None));
            }
            if !self.campaign_delay.is_zero() {
                self.place.leave();
                tokio::select! {
                    () = request.reply.abandoned() => return,
                    () = sleep(self.campaign_delay) => {}
                }
                if !self.is_vacant() {
                    continue;
                }
            }
            let Some(engine) = self.engine.upgrade().filter(|engine| !engine.is_closed()) else {
                return request.reply.send(Err(EngineError::new(EngineErrorKind::Closed)));
            };
            if lock(&self.shared.state).try_grant(self.session.id(), self.key, self.mode) {
                lock(&engine.fenced).push(Arc::clone(&self.session));
                self.place.leave();
                drop(engine);
                return self.grant(request).await;
            }
        }
    }

    /// Waits until the key is there for this one; false if nobody wants that any more, or its time is up.
    async fn until_vacant(&self, request: &mut FencedRequest) -> bool {
        self.place.take();
        while !self.is_vacant() {
            if self.engine.upgrade().is_none_or(|engine| engine.is_closed()) {
                // To be told so.
                return true;
            }
            if Clock::system().now() >= request.until {
                return false;
            }
            tokio::select! {
                () = request.reply.abandoned() => return false,
                () = sleep(POLL_INTERVAL) => {}
            }
        }
        !request.reply.is_abandoned()
    }

    fn is_vacant(&self) -> bool {
        self.place.is_next() && lock(&self.shared.state).admits(self.key, self.mode)
    }

    async fn grant(self, request: FencedRequest) {
        let term = Term::new(1, self.shared.terms.fetch_add(1, Ordering::AcqRel));
        let incumbent = Incumbent {
            since: Some(SystemTime::now()),
            term: Some(term),
            ..Incumbent::new(identity(self.session.id()))
        };
        lock(&self.shared.incumbents).insert(self.session.id(), incumbent);
        let fence = Fence::fresh(self.key, self.mode);
        let (grant, release) = FencedGrant::new(Arc::clone(&self.session), fence, term);
        request.reply.send(Ok(Some(grant)));
        self.hold(release).await;
    }

    async fn hold(self, mut release: FencedRelease) {
        let asks = release.given_up().await;
        lock(&self.shared.incumbents).remove(&self.session.id());
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

/// Where a request stands among those that wait for its key fenced.
struct Place {
    shared: Arc<Shared>,
    session: u64,
    key: Key,
}

impl Place {
    fn new(shared: &Arc<Shared>, session: u64, key: Key) -> Self {
        let shared = Arc::clone(shared);
        Self { shared, session, key }
    }

    /// Queues behind all others.
    fn take(&self) {
        let mut queues = lock(&self.shared.fenced_queues);
        let queue = queues.entry(self.key).or_default();
        if !queue.contains(&self.session) {
            queue.push_back(self.session);
        }
    }

    fn leave(&self) {
        let mut queues = lock(&self.shared.fenced_queues);
        if let Some(queue) = queues.get_mut(&self.key) {
            queue.retain(|session| *session != self.session);
            if queue.is_empty() {
                queues.remove(&self.key);
            }
        }
    }

    /// Whether nobody queues before this one.
    fn is_next(&self) -> bool {
        let queues = lock(&self.shared.fenced_queues);
        let first = queues.get(&self.key).and_then(VecDeque::front);
        first.is_none_or(|first| *first == self.session)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.leave();
    }
}
