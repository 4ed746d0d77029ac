//! A transaction for each request, with a database that is made up: every end that one can have.

mod begins;
mod ends;
mod joining;
mod leaving;
mod lending;
mod servers;

use std::convert::Infallible;

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use latchwork_core::Key;
pub(crate) use latchwork_harness::database::{self, Database, FakeTx};
use latchwork_tower::{RequestHead, TxLockLayer, key::ExtractKey};

type Layer = TxLockLayer<Database>;
type LockedTx = latchwork_tower::LockedTx<FakeTx>;

const KEY: Key = Key::bigint(1);

fn layer(database: &Database) -> Layer {
    keyed(database, KEY)
}

fn keyed(database: &Database, key: impl ExtractKey<RequestHead>) -> Layer {
    Layer::new(database.clone(), key).unwrap()
}

fn request() -> Request<Body> {
    Request::post("/").body(Body::empty()).unwrap()
}

/// A handler's answer, with headers.
fn answer(status: u16, headers: &[(&'static str, &'static str)]) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Body::from("the handler's")).unwrap()
}

/// The status and the body of an answer.
async fn read<B>(answer: Result<Response<B>, Infallible>) -> (u16, String)
where
    B: http_body::Body<Error: std::fmt::Debug>,
{
    let Ok(answer) = answer;
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn problem(name: &str) -> String {
    format!("urn:latchwork:problem:{name}")
}
