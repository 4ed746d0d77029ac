//! What moves the bytes: two threads a connection, which stop at a gate before they pass anything on.

use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;

use super::Endpoint;
use super::stream::Stream;
use crate::wait::lock;

const CHUNK: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) round_trips: u64,
    pub(super) to_server: u64,
    pub(super) to_client: u64,
    pub(super) accepted: u64,
}

/// What the proxy and all its threads share.
#[derive(Debug)]
pub(super) struct Shared {
    upstream: Endpoint,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests_frozen: bool,
    answers_frozen: bool,
    refusing: bool,
    closed: bool,
    traffic: Traffic,
    connections: Vec<Arc<Connection>>,
}

#[derive(Debug)]
struct Connection {
    client: Stream,
    server: OnceLock<Stream>,
    cut: AtomicBool,
    client_spoke_last: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

impl Shared {
    pub(super) fn new(upstream: Endpoint) -> Self {
        Self {
            upstream,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn set_frozen(&self, requests: bool, answers: bool) {
        let mut state = lock(&self.state);
        state.requests_frozen = requests;
        state.answers_frozen = answers;
        self.changed.notify_all();
    }

    pub(super) fn set_refusing(&self, refusing: bool) {
        lock(&self.state).refusing = refusing;
    }

    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).closed
    }

    pub(super) fn traffic(&self) -> Traffic {
        lock(&self.state).traffic
    }

    pub(super) fn open(&self) -> usize {
        lock(&self.state).connections.len()
    }

    pub(super) fn cut(&self) {
        let mut state = lock(&self.state);
        for connection in state.connections.drain(..) {
            connection.cut();
        }
        self.changed.notify_all();
    }

    /// Waits while the direction is frozen; `false` when there is nothing left to pass on to.
    fn pass(&self, connection: &Connection, direction: Direction) -> bool {
        let state = lock(&self.state);
        let frozen = |state: &mut State| {
            let frozen = match direction {
                Direction::ToServer => state.requests_frozen,
                Direction::ToClient => state.answers_frozen,
            };
            frozen && !state.closed && !connection.is_cut()
        };
        drop(
            self.changed
                .wait_while(state, frozen)
                .unwrap_or_else(PoisonError::into_inner),
        );
        !connection.is_cut()
    }

    fn count(&self, connection: &Connection, direction: Direction, bytes: usize) {
        let traffic = &mut lock(&self.state).traffic;
        let from_client = direction == Direction::ToServer;
        let answered = !connection.client_spoke_last.swap(from_client, Ordering::Relaxed);
        if from_client {
            traffic.to_server += bytes as u64;
            traffic.round_trips += u64::from(answered);
        } else {
            traffic.to_client += bytes as u64;
        }
    }

    fn forget(&self, connection: &Arc<Connection>) {
        lock(&self.state)
            .connections
            .retain(|other| !Arc::ptr_eq(other, connection));
    }
}

impl Connection {
    fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        self.client.shutdown(Shutdown::Both);
        if let Some(server) = self.server.get() {
            server.shutdown(Shutdown::Both);
        }
    }
}

/// Takes on a client; without threads or upstream its connection just closes.
pub(super) fn serve(shared: &Arc<Shared>, client: Stream) {
    let connection = Arc::new(Connection {
        client,
        server: OnceLock::new(),
        cut: AtomicBool::new(false),
        client_spoke_last: AtomicBool::new(false),
    });
    {
        let mut state = lock(&shared.state);
        state.traffic.accepted += 1;
        if state.refusing {
            connection.cut();
            return;
        }
        state.connections.push(Arc::clone(&connection));
    }
    let started = thread::Builder::new().name("latchwork-proxy-up".to_owned()).spawn({
        let (shared, connection) = (Arc::clone(shared), Arc::clone(&connection));
        move || {
            forward(&shared, &connection);
            connection.cut();
            shared.forget(&connection);
        }
    });
    if started.is_err() {
        connection.cut();
        shared.forget(&connection);
    }
}

/// Forwards both directions until both have ended.
fn forward(shared: &Arc<Shared>, connection: &Arc<Connection>) {
    // A frozen network does not connect either.
    if !shared.pass(connection, Direction::ToServer) {
        return;
    }
    let Ok(server) = Stream::connect(&shared.upstream) else {
        return;
    };
    let server = connection.server.get_or_init(|| server);
    let answers = thread::Builder::new().name("latchwork-proxy-down".to_owned()).spawn({
        let (shared, connection) = (Arc::clone(shared), Arc::clone(connection));
        move || {
            if let Some(server) = connection.server.get() {
                pump(&shared, &connection, Direction::ToClient, server, &connection.client);
            }
        }
    });
    if let Ok(answers) = answers {
        // A cut that came before the server's end was known has closed the client's end alone.
        if connection.is_cut() {
            server.shutdown(Shutdown::Both);
        }
        pump(shared, connection, Direction::ToServer, &connection.client, server);
        drop(answers.join());
    }
}

fn pump(shared: &Shared, connection: &Connection, direction: Direction, from: &Stream, to: &Stream) {
    let mut buffer = [0; CHUNK];
    loop {
        let length = from.read(&mut buffer).unwrap_or(0);
        if length == 0 {
            break;
        }
        shared.count(connection, direction, length);
        if !shared.pass(connection, direction) || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    // The end of a stream is news as well, and a frozen network keeps it.
    if shared.pass(connection, direction) {
        to.shutdown(Shutdown::Write);
    }
}
