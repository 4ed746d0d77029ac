//! A small shop on axum. Start as many instances as you like: what each may do at a moment they agree on by one
//! PostgreSQL, which is theirs anyway.
//!
//! `routes.rs` says which layer is around which route, and `handlers.rs` what they lead to. What has nothing to do with
//! axum is in the package `shop`, next door: read its `instance.rs` for what a service makes once, when it starts, and
//! its `rules.rs` for who may do what and when.

mod error;
mod handlers;
mod routes;

use std::{
    future::{Future, IntoFuture},
    io,
    net::{SocketAddr, TcpListener},
    process::ExitCode,
};

use shop::{End, Failure, Shop};

fn main() -> ExitCode {
    shop::main("axum-shop", serve)
}

fn serve(
    listener: TcpListener,
    shop: &Shop,
    end: End,
) -> Result<impl Future<Output = io::Result<()>> + Send + use<>, Failure> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // The limit of a client without a key needs its address.
    let service = routes::router(shop)?.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(end.comes());
    Ok(server.into_future())
}
