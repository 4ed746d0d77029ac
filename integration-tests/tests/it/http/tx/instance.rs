//! One instance of a service whose requests have transactions.

use std::net::SocketAddr;

use deadpool_postgres::{Manager, Pool};
use latchwork_harness::http::{Event, Watcher, stage};
use tokio_postgres::NoTls;

use super::servers::{Server, Service};
use crate::http::servers::Served;

pub(super) struct Instance {
    pub(super) address: SocketAddr,
    pub(super) pool: Pool,
    watcher: Watcher,
    served: Served,
}

impl Instance {
    pub(super) fn start<S: Server>(url: &str, size: usize) -> Self {
        let manager = Manager::new(url.parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(size).build().unwrap();
        let (stage, watcher) = stage();
        let served = S::serve(Service {
            pool: pool.clone(),
            stage,
        });
        Self {
            address: served.address,
            pool,
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
