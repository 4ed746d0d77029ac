//! Sends requests to the instances.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;

use crate::failure::Failure;
use crate::instance::Instance;
use crate::work::Visit;

/// An HTTP client that gives every request a connection of its own, as many different users would.
#[derive(Clone, Debug)]
pub(crate) struct Client(hyper_util::client::legacy::Client<HttpConnector, Empty<Bytes>>);

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// The instance that was asked.
    pub(crate) instance: &'static str,
    pub(crate) status: u16,
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: String,
}

/// What the service says of a request that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Entry {
    pub(crate) slot: Option<u32>,
    #[serde(flatten)]
    pub(crate) visit: Visit,
}

impl Reply {
    /// What the body says of a request that was let in; `None` if it does not.
    pub(crate) fn entry(&self) -> Option<Entry> {
        serde_json::from_str(&self.body).ok()
    }
}

impl Client {
    pub(crate) fn new() -> Self {
        let builder = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build_http();
        Self(builder)
    }

    /// Charges an order; the handler takes `ms`.
    pub(crate) fn charge(
        &self,
        instance: &Instance,
        order: &str,
        ms: u64,
    ) -> impl Future<Output = Result<Reply, Failure>> + use<> {
        self.send(Method::POST, instance, format!("/orders/{order}/charge?ms={ms}"), ms)
    }

    /// Asks the model; the handler takes `ms`.
    pub(crate) fn ask_model(
        &self,
        instance: &Instance,
        ms: u64,
    ) -> impl Future<Output = Result<Reply, Failure>> + use<> {
        self.send(Method::GET, instance, format!("/ai?ms={ms}"), ms)
    }

    fn send(
        &self,
        method: Method,
        instance: &Instance,
        path: String,
        ms: u64,
    ) -> impl Future<Output = Result<Reply, Failure>> + use<> {
        let (client, name) = (self.0.clone(), instance.name());
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", instance.url()))
            .body(Empty::new());
        let limit = PATIENCE + Duration::from_millis(ms);
        async move {
            let exchange = async {
                let response = client.request(request?).await?;
                let (head, body) = response.into_parts();
                let body = body.collect().await?.to_bytes();
                let retry_after = head
                    .headers
                    .get(RETRY_AFTER)
                    .and_then(|value| value.to_str().ok()?.parse().ok());
                Ok(Reply {
                    instance: name,
                    status: head.status.as_u16(),
                    retry_after,
                    body: String::from_utf8_lossy(&body).into_owned(),
                })
            };
            match tokio::time::timeout(limit, exchange).await {
                Ok(reply) => reply.map_err(|error: Failure| Failure::new(format!("instance {name}, {path}: {error}"))),
                Err(_) => Err(Failure::new(format!(
                    "instance {name} has not answered {path} within {limit:?}"
                ))),
            }
        }
    }
}

/// How long an instance may take on top of its handler's time.
const PATIENCE: Duration = Duration::from_secs(15);
