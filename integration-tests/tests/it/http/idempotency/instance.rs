//! One instance of a service that takes payments.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::AtomicUsize},
};

use latchwork_harness::http::{Event, Watcher, stage};
use latchwork_postgres::{Postgres, PostgresOptions};

use super::servers::{Server, Service};
use crate::{
    http::{library::Library as _, servers::Served},
    onlooker::{SOON, connect},
};

pub(super) struct Instance {
    pub(super) address: SocketAddr,
    watcher: Watcher,
    /// How often the handler that works elsewhere has worked.
    pub(super) mails: Arc<AtomicUsize>,
    postgres: Postgres,
    served: Served,
}

impl Instance {
    pub(super) async fn start<S: Server>(url: &str, options: PostgresOptions, pool: usize) -> Self {
        let postgres = connect(url, options).await;
        let (stage, watcher) = stage();
        let mails = Arc::new(AtomicUsize::new(0));
        let served = S::serve(Service {
            provider: S::Library::connect(url, pool),
            locks: postgres.locks(),
            stage,
            mails: Arc::clone(&mails),
        });
        Self {
            address: served.address,
            watcher,
            mails,
            postgres,
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
        self.postgres.locks().close_within(SOON).await.unwrap();
        self.served.stop.await;
    }
}
