//! One instance of a service with rate limits.

use std::net::SocketAddr;

use axum::{
    Extension, Router,
    routing::{get, post},
};
use latchwork_core::rate::{OnOutage, Quota, Quotas, RateDecision, RateLimits, RateLimitsOptions};
use latchwork_postgres::{PostgresOptions, RateOptions};
use latchwork_tower::{
    RateHeaders, RateLimitLayer,
    key::{client, header},
};
use tokio::{net::TcpListener, task::JoinHandle};

use crate::onlooker::{SOON, connect};

pub(super) struct Instance {
    pub(super) address: SocketAddr,
    open: RateLimits,
    closed: RateLimits,
    server: JoinHandle<()>,
}

impl Instance {
    pub(super) async fn start(url: &str, options: PostgresOptions) -> Self {
        let postgres = connect(url, options).await;
        let rates = |on_outage| {
            let limits = RateLimitsOptions::default().with_on_outage(on_outage);
            postgres.rate_limits(RateOptions::default().with_limits(limits).with_answer_within(SOON))
        };
        let (open, closed) = (rates(OnOutage::Open), rates(OnOutage::Closed));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app(&open, &closed).into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            address,
            open,
            closed,
            server,
        }
    }

    pub(super) async fn close(self) {
        self.open.close().await;
        self.closed.close().await;
        self.server.abort();
    }
}

/// So rare that nothing comes back during a test.
fn rarely(burst: u32) -> Quota {
    Quota::per_day(1).unwrap().with_burst(burst).unwrap()
}

fn app(open: &RateLimits, closed: &RateLimits) -> Router {
    let limit = |name: &str, quotas: Quotas| {
        let key = (name.to_owned(), header("x-api-key"));
        RateLimitLayer::new(open.clone(), key, quotas)
            .unwrap()
            .name(name)
            .unwrap()
    };
    let both = Quotas::all([rarely(3), rarely(5)]).unwrap();
    let costly = limit("costly", rarely(10).into()).cost_by(|parts| match parts.uri.query() {
        Some(query) => query.parse().unwrap_or(1),
        None => 1,
    });
    let plans = limit("plans", rarely(1).into())
        .quotas_by(|parts| parts.headers.contains_key("x-paid").then(|| rarely(4).into()));
    let older = limit("older", rarely(2).into()).headers(RateHeaders::XRateLimit);
    let by_client = RateLimitLayer::new(open.clone(), ("by client", client()), rarely(2)).unwrap();
    let shut = RateLimitLayer::new(closed.clone(), "shut", rarely(100)).unwrap();
    Router::new()
        .route("/both", get(told).layer(limit("both", both)))
        .route("/one", get(told).layer(limit("one", rarely(1).into())))
        .route("/costly", get(told).layer(costly))
        .route("/plans", get(told).layer(plans))
        .route("/older", get(told).layer(older))
        .route("/shadow", get(told).layer(limit("shadow", rarely(1).into()).shadow()))
        .route("/by-client", get(told).post(told).layer(by_client))
        .route("/shut", post(told).layer(shut))
}

/// Tells what the layer has decided.
async fn told(Extension(decision): Extension<RateDecision>) -> String {
    let (allowed, degraded) = (decision.is_allowed(), decision.is_degraded());
    format!(
        "allowed={allowed} degraded={degraded} remaining={}",
        decision.remaining()
    )
}
