use std::net::SocketAddr;

use ::axum::{
    Extension, Router,
    routing::{get, post},
};
use latchwork_core::rate::{Quotas, RateDecision};
use latchwork_tower::{
    RateHeaders, RateLimitLayer,
    key::{client, header},
};

use super::{Server, Service, both, cost, rarely};
use crate::http::servers::{HERE, Served, listener};

pub(in super::super) enum Axum {}

impl Server for Axum {
    fn serve(service: &Service) -> Served {
        let listener = listener();
        let address = listener.local_addr().unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let app = app(service).into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(async move { ::axum::serve(listener, app).await.unwrap() });
        let stop = Box::pin(async move { server.abort() });
        Served { address, stop }
    }
}

fn app(service: &Service) -> Router {
    let limit = |name: &str, quotas: Quotas| {
        let key = (name.to_owned(), header("x-api-key"));
        let limit = RateLimitLayer::new(service.open.clone(), key, quotas).unwrap();
        limit.name(name).unwrap()
    };
    let costly = limit("costly", rarely(10).into()).cost_by(|parts| cost(parts.uri.query()));
    let plans = limit("plans", rarely(1).into())
        .quotas_by(|parts| parts.headers.contains_key("x-paid").then(|| rarely(4).into()));
    let older = limit("older", rarely(2).into()).headers(RateHeaders::XRateLimit);
    let by_client = RateLimitLayer::new(service.open.clone(), ("by client", client()), rarely(2)).unwrap();
    let proxied = ("proxied", client().behind(HERE));
    let by_proxied = RateLimitLayer::new(service.open.clone(), proxied, rarely(2)).unwrap();
    let shut = RateLimitLayer::new(service.closed.clone(), "shut", rarely(100)).unwrap();
    Router::new()
        .route("/both", get(told).layer(limit("both", both())))
        .route("/one", get(told).layer(limit("one", rarely(1).into())))
        .route("/costly", get(told).layer(costly))
        .route("/plans", get(told).layer(plans))
        .route("/older", get(told).layer(older))
        .route("/shadow", get(told).layer(limit("shadow", rarely(1).into()).shadow()))
        .route("/by-client", get(told).post(told).layer(by_client))
        .route("/by-proxied-client", get(told).layer(by_proxied))
        .route("/shut", post(told).layer(shut))
}

async fn told(Extension(decision): Extension<RateDecision>) -> String {
    super::told(&decision)
}
