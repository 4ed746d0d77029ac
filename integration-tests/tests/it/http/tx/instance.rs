//! One instance of a service whose requests have transactions.

use std::net::SocketAddr;

use latchwork_harness::http::{Event, Watcher, stage};

use super::servers::{Server, Service};
use crate::http::{library::Library, servers::Served};

pub(super) struct Instance {
    pub(super) address: SocketAddr,
    watcher: Watcher,
    served: Served,
}

impl Instance {
    pub(super) fn start<S: Server>(url: &str, size: usize) -> Self {
        Self::over::<S>(S::Library::connect(url, size))
    }

    /// With a pooler between it and the server.
    pub(super) async fn start_behind<S: Server>(url: &str, size: usize) -> Self {
        Self::over::<S>(S::Library::connect_behind_pooler(url, size).await)
    }

    fn over<S: Server>(provider: <S::Library as Library>::Provider) -> Self {
        let (stage, watcher) = stage();
        let served = S::serve(Service { provider, stage });
        Self {
            address: served.address,
            watcher,
            served,
        }
    }

    pub(super) async fn sees(&mut self, event: Event) {
        self.watcher.sees(event).await;
    }

    pub(super) fn lets_go(&self, handlers: usize) {
        self.watcher.lets_go(handlers);
    }

    pub(super) async fn close(self) {
        self.served.stop.await;
    }
}
