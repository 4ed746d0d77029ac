//! A handler that is told when to end, a server for it, and a client that can leave.

use std::{future::Future, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use latchwork_core::{Key, Locks};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
    time::timeout,
};

/// No step of a test takes as long.
const PATIENCE: Duration = Duration::from_secs(20);

/// What comes in time.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it happens in time")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Entered,
    Done,
    Dropped,
}

/// Where a handler waits until it is told to go on.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    events: mpsc::UnboundedSender<Event>,
    go: Arc<Semaphore>,
}

/// Sees what happens on a stage.
pub(crate) struct Watcher {
    events: mpsc::UnboundedReceiver<Event>,
    go: Arc<Semaphore>,
}

pub(crate) fn stage() -> (Stage, Watcher) {
    let (to, events) = mpsc::unbounded_channel();
    let go = Arc::new(Semaphore::new(0));
    let stage = Stage {
        events: to,
        go: Arc::clone(&go),
    };
    (stage, Watcher { events, go })
}

impl Stage {
    /// Runs until the watcher lets one go.
    pub(crate) async fn play(&self) {
        self.tell(Event::Entered);
        let mut end = End {
            stage: self,
            done: false,
        };
        self.go.acquire().await.unwrap().forget();
        end.done = true;
    }

    pub(crate) fn tell(&self, event: Event) {
        // The test may be over.
        let _ = self.events.send(event);
    }
}

struct End<'a> {
    stage: &'a Stage,
    done: bool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.stage.tell(if self.done { Event::Done } else { Event::Dropped });
    }
}

impl Watcher {
    pub(crate) async fn sees(&mut self, event: Event) {
        assert_eq!(in_time(self.events.recv()).await, Some(event));
    }

    pub(crate) fn has_seen_nothing(&mut self) -> bool {
        self.events.try_recv().is_err()
    }

    pub(crate) fn lets_go(&self, handlers: usize) {
        self.go.add_permits(handlers);
    }
}

pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    Fin,
    Rst,
    HalfClose,
}

pub(crate) const WAYS_TO_LEAVE: [Leave; 3] = [Leave::Fin, Leave::Rst, Leave::HalfClose];

pub(crate) struct Client(TcpStream);

impl Client {
    pub(crate) async fn connect(server: SocketAddr) -> Self {
        Self(in_time(TcpStream::connect(server)).await.unwrap())
    }

    /// Sends a request, and leaves its answer unread.
    pub(crate) async fn asks(server: SocketAddr, request: &str, headers: &str) -> Self {
        let mut client = Self::connect(server).await;
        client
            .send(format!("{request} HTTP/1.1\r\nhost: test\r\n{headers}\r\n").as_bytes())
            .await;
        client
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        in_time(self.0.write_all(bytes)).await.unwrap();
    }

    /// Reads until something that ends like this has come.
    pub(crate) async fn reads_until(&mut self, end: &str) -> String {
        let mut read = Vec::new();
        while !read.ends_with(end.as_bytes()) {
            read.push(in_time(self.0.read_u8()).await.unwrap());
        }
        String::from_utf8(read).unwrap()
    }

    /// Reads to the end of the connection.
    pub(crate) async fn answer(mut self) -> Answer {
        let mut read = Vec::new();
        in_time(self.0.read_to_end(&mut read)).await.unwrap();
        Answer(String::from_utf8(read).unwrap())
    }

    /// Leaves. What is returned keeps the other half of the connection, if that stays.
    pub(crate) async fn leave(mut self, how: Leave) -> Option<Self> {
        match how {
            Leave::Fin => None,
            Leave::Rst => {
                self.0.set_zero_linger().unwrap();
                None
            }
            Leave::HalfClose => {
                self.0.shutdown().await.unwrap();
                Some(self)
            }
        }
    }
}

/// A response as it came over the wire.
#[derive(Debug)]
pub(crate) struct Answer(pub(crate) String);

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.0.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (head, _) = self.0.split_once("\r\n\r\n").unwrap();
        head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").unwrap().1
    }
}

/// One request on a connection of its own.
pub(crate) async fn ask(server: SocketAddr, request: &str) -> Answer {
    ask_with(server, request, "").await
}

pub(crate) async fn ask_with(server: SocketAddr, request: &str, headers: &str) -> Answer {
    let headers = format!("connection: close\r\n{headers}");
    Client::asks(server, request, &headers).await.answer().await
}

/// Waits until nobody holds the key.
pub(crate) async fn is_free(locks: &Locks, key: Key) {
    drop(in_time(locks.acquire(key).within(PATIENCE)).await.unwrap());
}

pub(crate) async fn is_held(locks: &Locks, key: Key) -> bool {
    locks.try_acquire(key).await.unwrap().is_none()
}
