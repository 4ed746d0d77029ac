//! One instance of a gRPC server with a service for each policy.

use std::net::SocketAddr;

use deadpool_postgres::{Manager, Pool};
use latchwork_core::rate::{OnOutage, RateLimits, RateLimitsOptions};
use latchwork_harness::{
    Endpoint, Proxy,
    grpc::{channel, listen},
    http::{Event, Watcher, stage},
};
use latchwork_postgres::{Postgres, RateOptions};
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;
use tonic::transport::Channel;

use super::services::router;
use crate::onlooker::{SOON, connect, quick};

/// How many transactions an instance can have at once.
pub(super) const POOL: usize = 2;

pub(super) struct Instance {
    pub(super) channel: Channel,
    address: SocketAddr,
    watcher: Watcher,
    postgres: Postgres,
    rates: [RateLimits; 2],
    server: JoinHandle<()>,
}

impl Instance {
    pub(super) async fn start(url: &str) -> Self {
        let manager = Manager::new(url.parse().unwrap(), NoTls);
        let pool = Pool::builder(manager).max_size(POOL).build().unwrap();
        let postgres = connect(url, quick()).await;
        let rates = [OnOutage::Open, OnOutage::Closed].map(|on_outage| {
            let limits = RateLimitsOptions::default().with_on_outage(on_outage);
            postgres.rate_limits(RateOptions::default().with_limits(limits).with_answer_within(SOON))
        });
        let (stage, watcher) = stage();
        let router = router(&postgres.locks(), &pool, &rates, &stage);
        let (incoming, channel) = listen().await;
        let address = incoming.local_addr().unwrap();
        let server = tokio::spawn(async move { router.serve_with_incoming(incoming).await.unwrap() });
        Self {
            channel,
            address,
            watcher,
            postgres,
            rates,
            server,
        }
    }

    pub(super) async fn sees(&mut self, event: Event) {
        self.watcher.sees(event).await;
    }

    pub(super) fn lets_go(&self, handlers: usize) {
        self.watcher.lets_go(handlers);
    }

    /// A connection that is nobody else's.
    pub(super) fn own_channel(&self) -> Channel {
        channel(self.address)
    }

    /// A network before the server that can break.
    pub(super) fn proxy(&self) -> Proxy {
        Proxy::start_tcp(Endpoint::Tcp(self.address)).unwrap()
    }

    pub(super) async fn close(self) {
        for rates in self.rates {
            rates.close().await;
        }
        self.postgres.locks().close_within(SOON).await.unwrap();
        self.server.abort();
    }
}

pub(super) fn channel_through(proxy: &Proxy) -> Channel {
    match proxy.endpoint() {
        Endpoint::Tcp(address) => channel(*address),
        other => unreachable!("{other:?}"),
    }
}
