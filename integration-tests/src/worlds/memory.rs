use std::sync::Mutex;

use latchwork_core::memory::MemoryServer;
use latchwork_core::{Key, Locks, LocksOptions};

use crate::world::LONG;
use crate::worlds::postgres::leftovers;
use crate::{SessionWorld, Setup, View, World};

/// The engine inside the process.
#[derive(Debug)]
pub struct Memory {
    server: MemoryServer,
    processes: Mutex<Vec<Locks>>,
}

impl World for Memory {
    type Party = Locks;

    const QUEUES: bool = true;

    const ENDS_ALL: bool = true;

    async fn start() -> Self {
        Self {
            server: MemoryServer::new(),
            processes: Mutex::default(),
        }
    }

    async fn party(&self) -> Locks {
        self.process().await
    }

    async fn view(&self) -> View {
        View {
            held: self.server.held(),
            waiting: self.server.queued(),
        }
    }

    async fn end_holders_of(&self, _key: Key) {
        self.server.end_sessions();
    }

    async fn complaints(&self) -> Vec<String> {
        Vec::new()
    }

    fn allow(&self, _words: &'static str, _most: usize) {}

    fn leftovers(&self) -> Option<String> {
        leftovers(&self.processes.lock().unwrap())
    }

    async fn end(self) {
        for process in self.processes.into_inner().unwrap() {
            process.close_within(LONG).await.unwrap();
        }
    }
}

impl SessionWorld for Memory {
    async fn process_with(&self, setup: Setup) -> Locks {
        let mut options = LocksOptions::default();
        options.hand_over = setup.hand_over;
        let process = self.server.locks_with(options);
        self.processes.lock().unwrap().push(process.clone());
        process
    }
}
