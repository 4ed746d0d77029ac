//! One service, written once for each framework.

mod actix;
mod axum;

use std::{
    net::{SocketAddr, TcpListener},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use latchwork_core::Locks;
use latchwork_harness::http::Stage;

pub(super) use self::{actix::Actix, axum::Axum};

/// How many may stream at once.
pub(super) const SLOTS: u32 = 3;

/// How long a patient request waits for its turn.
const PATIENT: Duration = Duration::from_secs(15);

/// How long a request waits for its turn that runs to its end whatever its client does.
const HASTY: Duration = Duration::from_millis(50);

/// A framework, with the adapter for it.
pub(super) trait Server {
    /// Serves these routes, on a port of its own:
    ///
    /// | route | under | does |
    /// |---|---|---|
    /// | `POST /orders/{id}/charge` | a lock for each order | waits until the test lets it go |
    /// | `POST /patient` | one lock, waits for it | 200, or 500 if it is not alone |
    /// | `POST /complete` | the same lock, waits a little, runs to its end | the same |
    /// | `POST /by-header` | a lock for each `x-key` | waits until the test lets it go |
    /// | `POST /by-pair` | a lock for each pair of `x-a` and `x-b` | the same |
    /// | `GET /by-client`, `/by-proxied-client` | one slot for each client, also behind this machine | the same |
    /// | `GET /crowd` | slots | the same |
    /// | `GET /panics` | a lock and slots | panics |
    /// | `GET /early` | one slot, until the response | has a body without an end |
    /// | `GET /stream` | slots | says which in `x-slot`, and has a body without an end |
    fn serve(service: Service) -> Served;
}

/// What handlers need.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) locks: Locks,
    pub(super) stage: Stage,
    /// How many are at what only one may be at, over all instances.
    pub(super) inside: Arc<AtomicUsize>,
}

pub(super) struct Served {
    pub(super) address: SocketAddr,
    pub(super) stop: Pin<Box<dyn Future<Output = ()>>>,
}

impl Service {
    /// Whether nobody else is here, for a while.
    async fn is_alone(&self) -> bool {
        let others = self.inside.fetch_add(1, Ordering::SeqCst);
        let _leaves = Leaves(&self.inside);
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        others == 0
    }
}

/// This machine, as a proxy that may be believed.
pub(super) const HERE: [&str; 2] = ["127.0.0.0/8", "::1"];

struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}
