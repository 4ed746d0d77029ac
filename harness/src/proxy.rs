mod pump;
mod stream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use self::pump::{Shared, serve};
use self::stream::{Listener, Stream};
use crate::HarnessError;
use crate::cluster::Cluster;
use crate::scratch::Scratch;
use crate::url::libpq_url;
use crate::user::ServerUser;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

/// A forwarder between clients and a server that can lose their traffic, for tests of a broken network.
///
/// Dropping it closes all its connections.
///
/// # Examples
///
/// ```no_run
/// use latchwork_harness::{Cluster, Proxy};
///
/// # fn main() -> Result<(), latchwork_harness::HarnessError> {
/// let cluster = Cluster::start()?;
/// let proxy = Proxy::start(cluster.endpoint())?;
/// println!("connect to {}", proxy.url());
/// proxy.freeze(); // now nothing passes, and nobody is told
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: Endpoint,
    accepting: Option<JoinHandle<()>>,
    scratch: Scratch,
}

impl Proxy {
    /// Starts to forward from a new unix socket.
    ///
    /// # Errors
    ///
    /// Fails when the socket cannot be made.
    pub fn start(upstream: Endpoint) -> Result<Self, HarnessError> {
        let scratch = Scratch::new(ServerUser::ourselves())?;
        let path = scratch.path().join(format!(".s.PGSQL.{SOCKET_PORT}"));
        let listener = Listener::unix(&path).map_err(HarnessError::path("listen on", &path))?;
        Self::run(upstream, listener, Endpoint::Unix(path), scratch)
    }

    /// Starts to forward from a new port of 127.0.0.1, for tests of keepalive, TLS or TCP time limits.
    ///
    /// # Errors
    ///
    /// Fails when there is no free port.
    pub fn start_tcp(upstream: Endpoint) -> Result<Self, HarnessError> {
        let scratch = Scratch::new(ServerUser::ourselves())?;
        let (listener, address) = Listener::tcp().map_err(HarnessError::io("listen on 127.0.0.1"))?;
        Self::run(upstream, listener, Endpoint::Tcp(address), scratch)
    }

    /// The libpq URL of database `postgres` for the superuser through the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for("postgres", "postgres")
    }

    /// The libpq URL for another user or database through the proxy.
    #[must_use]
    pub fn url_for(&self, user: &str, database: &str) -> String {
        match &self.address {
            Endpoint::Unix(_) => libpq_url(user, &self.scratch.path().display().to_string(), SOCKET_PORT, database),
            Endpoint::Tcp(address) => libpq_url(user, &address.ip().to_string(), address.port(), database),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.address
    }

    /// Forwards nothing more, in either direction, and keeps every connection open.
    ///
    /// New connections are accepted and left alone. Nothing is lost: what was sent meanwhile passes after
    /// [`thaw`](Self::thaw), also the news that an end has closed.
    pub fn freeze(&self) {
        self.shared.set_frozen(true, true);
    }

    /// Forwards requests but no answers: the server acts and the client does not learn of it.
    pub fn freeze_answers(&self) {
        self.shared.set_frozen(false, true);
    }

    /// Ends [`freeze`](Self::freeze), [`freeze_answers`](Self::freeze_answers) and [`refuse`](Self::refuse).
    pub fn thaw(&self) {
        self.shared.set_refusing(false);
        self.shared.set_frozen(false, false);
    }

    /// Closes every connection; new ones are welcome.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Closes every connection, and each new one at once, until [`thaw`](Self::thaw).
    pub fn refuse(&self) {
        self.shared.set_refusing(true);
        self.shared.cut();
    }

    /// How many times a client began to send after the start or after an answer: the round trips, over all connections.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.shared.traffic().round_trips
    }

    /// How many bytes clients have sent.
    #[must_use]
    pub fn bytes_to_server(&self) -> u64 {
        self.shared.traffic().to_server
    }

    /// How many bytes servers have sent.
    #[must_use]
    pub fn bytes_to_client(&self) -> u64 {
        self.shared.traffic().to_client
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.traffic().accepted
    }

    /// How many connections are open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.shared.open()
    }

    fn run(upstream: Endpoint, listener: Listener, address: Endpoint, scratch: Scratch) -> Result<Self, HarnessError> {
        let shared = Arc::new(Shared::new(upstream));
        let accepting = thread::Builder::new()
            .name("latchwork-proxy".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || accept(&listener, &shared)
            })
            .map_err(HarnessError::io("start a thread"))?;
        Ok(Self {
            shared,
            address,
            accepting: Some(accepting),
            scratch,
        })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.close();
        // Wakes the thread that accepts.
        drop(Stream::connect(&self.address));
        if let Some(thread) = self.accepting.take() {
            drop(thread.join());
        }
        self.shared.cut();
    }
}

impl Cluster {
    /// The TCP address, as the upstream of a [`Proxy`]; `None` unless the cluster was built with
    /// [`tcp`](crate::ClusterBuilder::tcp).
    #[must_use]
    pub fn tcp_endpoint(&self) -> Option<Endpoint> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port()));
        self.tcp_url_for("", "").map(|_| Endpoint::Tcp(address))
    }
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.is_closed() {
            return;
        }
        if let Ok(client) = accepted {
            serve(shared, client);
        }
    }
}

const SOCKET_PORT: u16 = 5432;
