//! An engine inside the process, for tests and for services that run once.

mod engine;
mod fenced;
mod ledger;
mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, Weak, atomic::AtomicU64},
};

use engine::MemoryEngine;
use ledger::Ledger;
use state::{Granted, State};

use crate::{
    WallClock,
    engine::Grant,
    key::Key,
    leader::Incumbent,
    locks::{Locks, LocksOptions, lock},
    session::SessionHealth,
};

/// A lock server in memory. All [`Locks`] made by one server exclude each other, as processes on one database do.
///
/// # Examples
///
/// ```
/// use latchwork_core::memory::MemoryServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = MemoryServer::new();
/// let (one, other) = (server.locks(), server.locks());
/// let guard = one.try_acquire("job").await?.expect("nobody holds it");
/// assert!(other.try_acquire("job").await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryServer {
    shared: Arc<Shared>,
}

impl MemoryServer {
    /// A server on which nothing is held.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`MemoryServer::new`], where the server's own time of day, which ticks are compared with, is that of a clock.
    #[must_use]
    pub fn on_clock(clock: WallClock) -> Self {
        let shared = Shared {
            ledger: Mutex::new(Ledger::on_clock(clock)),
            ..Shared::default()
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// A further session of this server, with a gate in front of it.
    #[must_use]
    pub fn locks(&self) -> Locks {
        self.locks_with(LocksOptions::default())
    }

    /// As [`MemoryServer::locks`], with options.
    #[must_use]
    pub fn locks_with(&self, options: LocksOptions) -> Locks {
        let engine = Arc::new_cyclic(|this| MemoryEngine::new(Arc::clone(&self.shared), Weak::clone(this)));
        lock(&self.shared.engines).push(Arc::downgrade(&engine));
        Locks::new(engine, options)
    }

    /// How many holds there are on this server, over all sessions.
    #[must_use]
    pub fn held(&self) -> usize {
        lock(&self.shared.state).held()
    }

    /// How many requests queue on this server, over all sessions.
    #[must_use]
    pub fn queued(&self) -> usize {
        lock(&self.shared.state).queued()
    }

    /// Ends every session, as a restart of a lock server would: all holds are lost, and each engine begins anew.
    pub fn end_sessions(&self) {
        let engines: Vec<_> = lock(&self.shared.engines).iter().filter_map(Weak::upgrade).collect();
        MemoryEngine::restart(&self.shared, &engines);
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    engines: Mutex<Vec<Weak<MemoryEngine>>>,
    sessions: AtomicU64,
    terms: AtomicU64,
    /// Which sessions queue for fenced locks, in order.
    fenced_queues: Mutex<HashMap<Key, VecDeque<u64>>>,
    /// Who has them, by session.
    incumbents: Mutex<HashMap<u64, Incumbent>>,
    ledger: Mutex<Ledger>,
}

impl Shared {
    /// Tells those whose requests were granted, on whichever engine they are.
    fn tell(&self, granted: Vec<Granted>) {
        if granted.is_empty() {
            return;
        }
        // Collected first: the last reference to an engine must not be dropped under the mutex, for that tells others too.
        let engines: Vec<_> = lock(&self.engines).iter().filter_map(Weak::upgrade).collect();
        let sessions: HashMap<u64, Arc<SessionHealth>> = engines
            .iter()
            .map(|engine| engine.session())
            .map(|session| (session.id(), session))
            .collect();
        for (session, request) in granted {
            match sessions.get(&session) {
                Some(session) => request.reply.send(Ok(Some(Grant::new(Arc::clone(session))))),
                // It ended in between, and its holds with it.
                None => drop(request),
            }
        }
    }
}
