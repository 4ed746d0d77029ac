//! gRPC services and calls whose messages are bytes as they are, so that no protocol has to be compiled.

mod raw;
mod unary;

use std::net::SocketAddr;

use ::http::uri::PathAndQuery;
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status,
    client::Grpc,
    transport::{Channel, Endpoint, server::TcpIncoming},
};

pub use raw::Raw;
pub use unary::{Handler, Unary};

use crate::http::in_time;

/// A port for a server, and a channel to it that connects with the first call.
///
/// # Panics
///
/// If there is no free port.
pub async fn listen() -> (TcpIncoming, Channel) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it listens");
    (TcpIncoming::from(listener), channel(address))
}

/// A channel to a server, with a connection of its own that is made with the first call.
///
/// # Panics
///
/// Outside of a runtime.
#[must_use]
pub fn channel(server: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{server}")).expect("it is a URL");
    endpoint.connect_lazy()
}

/// Calls a method of one request and one response. Dropped, the call is cancelled.
///
/// # Errors
///
/// What the server answers with.
///
/// # Panics
///
/// If the server cannot be reached, or there is no answer in time.
pub async fn call(
    channel: &Channel,
    path: &'static str,
    request: Request<Vec<u8>>,
) -> Result<Response<Vec<u8>>, Status> {
    let mut grpc = Grpc::new(channel.clone());
    in_time(grpc.ready()).await.expect("the server listens");
    in_time(grpc.unary(request, PathAndQuery::from_static(path), Raw)).await
}
