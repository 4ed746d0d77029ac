//! One instance of a service with rate limits.

use std::net::SocketAddr;

use latchwork_core::rate::{OnOutage, RateLimits, RateLimitsOptions};
use latchwork_postgres::{PostgresOptions, RateOptions};

use super::servers::{Server, Service};
use crate::{
    http::servers::Served,
    onlooker::{SOON, connect},
};

pub(super) struct Instance {
    pub(super) address: SocketAddr,
    open: RateLimits,
    closed: RateLimits,
    served: Served,
}

impl Instance {
    pub(super) async fn start<S: Server>(url: &str, options: PostgresOptions) -> Self {
        let postgres = connect(url, options).await;
        let rates = |on_outage| {
            let limits = RateLimitsOptions::default().with_on_outage(on_outage);
            postgres.rate_limits(RateOptions::default().with_limits(limits).with_answer_within(SOON))
        };
        let (open, closed) = (rates(OnOutage::Open), rates(OnOutage::Closed));
        let served = S::serve(&Service {
            open: open.clone(),
            closed: closed.clone(),
        });
        Self {
            address: served.address,
            open,
            closed,
            served,
        }
    }

    pub(super) async fn close(self) {
        self.open.close().await;
        self.closed.close().await;
        self.served.stop.await;
    }
}
