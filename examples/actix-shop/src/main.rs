//! A small shop on actix-web. Start as many instances as you like: what each may do at a moment they agree on by one
//! PostgreSQL, which is theirs anyway.
//!
//! `routes.rs` says which middleware is around which route, and `handlers.rs` what they lead to. What has nothing to do
//! with actix-web is in the package `shop`, next door: read its `instance.rs` for what a service makes once, when it
//! starts, and its `rules.rs` for who may do what and when.

mod error;
mod handlers;
mod routes;

use std::{future::Future, io, net::TcpListener, process::ExitCode};

use actix_web::{App, HttpServer};
use routes::Routes;
use shop::{End, Failure, Shop};

fn main() -> ExitCode {
    shop::main("actix-shop", serve)
}

fn serve(
    listener: TcpListener,
    shop: &Shop,
    end: End,
) -> Result<impl Future<Output = io::Result<()>> + Send + use<>, Failure> {
    // Once, and not for each worker: what cannot work is then an error at the start.
    let routes = Routes::new(shop)?;
    let server = HttpServer::new(move || App::new().configure(|app| routes.add(app)))
        .workers(WORKERS)
        // A client that leaves ends its handler at once. By default actix-web lets it run on, with the order's lock.
        .h1_allow_half_closed(false)
        .shutdown_signal(end.comes())
        .listen(listener)?;
    Ok(server.run())
}

/// Threads that serve requests.
const WORKERS: usize = 4;
