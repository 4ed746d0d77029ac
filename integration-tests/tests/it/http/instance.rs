//! One instance of a service, on a session of its own.

use std::{
    net::SocketAddr,
    ops::{Deref, DerefMut},
    sync::{Arc, atomic::AtomicUsize},
};

use latchwork_harness::http::{Watcher, stage};
use latchwork_postgres::{Postgres, PostgresOptions};

use super::servers::{Served, Server, Service};
use crate::onlooker::{SOON, connect};

pub(super) struct Instance {
    pub(super) address: SocketAddr,
    watcher: Watcher,
    postgres: Postgres,
    served: Served,
}

impl Instance {
    pub(super) async fn start<S: Server>(url: &str, options: PostgresOptions, inside: &Arc<AtomicUsize>) -> Self {
        let postgres = connect(url, options).await;
        let (stage, watcher) = stage();
        let served = S::serve(Service {
            locks: postgres.locks(),
            stage,
            inside: Arc::clone(inside),
        });
        Self {
            address: served.address,
            watcher,
            postgres,
            served,
        }
    }

    /// Waits until everything that was held is given up, and ends the sessions.
    pub(super) async fn close(self) {
        self.postgres.locks().close_within(SOON).await.unwrap();
        self.served.stop.await;
    }
}

impl Deref for Instance {
    type Target = Watcher;

    fn deref(&self) -> &Watcher {
        &self.watcher
    }
}

impl DerefMut for Instance {
    fn deref_mut(&mut self) -> &mut Watcher {
        &mut self.watcher
    }
}
