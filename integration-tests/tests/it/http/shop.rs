//! Two instances of one service on one database, and who looks at both from outside.

use std::sync::Arc;

use latchwork_harness::Cluster;
use latchwork_postgres::PostgresOptions;

use super::{instance::Instance, servers::Server};
use crate::onlooker::{Onlooker, eventually, loud, quick};

pub(super) struct Shop {
    pub(super) cluster: Cluster,
    pub(super) onlooker: Onlooker,
    pub(super) one: Instance,
    pub(super) other: Instance,
}

impl Shop {
    /// Instances that see a loss in moments.
    pub(super) async fn open<S: Server>() -> Self {
        Self::with::<S>(quick()).await
    }

    /// Instances for which a server that is slow, because the machine is busy, is no loss.
    pub(super) async fn open_to_crowds<S: Server>() -> Self {
        Self::with::<S>(PostgresOptions::default()).await
    }

    async fn with<S: Server>(options: PostgresOptions) -> Self {
        let cluster = Cluster::start().unwrap();
        let onlooker = Onlooker::new(&cluster.url()).await;
        let inside = Arc::default();
        let one = Instance::start::<S>(&cluster.url(), options.clone(), &inside).await;
        let other = Instance::start::<S>(&cluster.url(), options, &inside).await;
        Self {
            cluster,
            onlooker,
            one,
            other,
        }
    }

    /// Ends both instances, and sees that the server has nothing left and nothing to complain of, but for waits that
    /// were cancelled because their clients have left.
    pub(super) async fn close(self) {
        self.one.close().await;
        self.other.close().await;
        // The server notices the end of a connection a moment later.
        let onlooker = &self.onlooker;
        eventually("nothing is left", async || {
            onlooker.held().await + onlooker.queued().await == 0
        })
        .await;
        let complaints = loud(&self.cluster)
            .into_iter()
            .filter(|line| !line.contains("canceling statement due to user request"));
        assert_eq!(complaints.collect::<Vec<_>>(), Vec::<String>::new());
    }
}
