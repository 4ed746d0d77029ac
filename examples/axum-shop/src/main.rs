//! A small shop on axum. Start as many instances as you like: what each may do at a moment they agree on by one
//! PostgreSQL, which is theirs anyway.
//!
//! `routes.rs` says who may do what and when. The handlers have a file each. What has nothing to do with axum is in the
//! package `shop`, next door: read its `instance.rs` for what a service makes once, when it starts.

mod ai;
mod error;
mod orders;
mod payments;
mod routes;
mod search;
mod stats;

use std::{
    net::{SocketAddr, TcpListener},
    process::ExitCode,
    time::Duration,
};

use latchwork::Config;
use shop::{Failure, Shop, Stop};
use tokio::{sync::oneshot, time::timeout};

fn main() -> ExitCode {
    shop::main("axum-shop", run)
}

#[tokio::main]
async fn run(listener: TcpListener, config: Config) -> Result<(), Failure> {
    let mut stop = Stop::listen()?;
    let shop = tokio::select! {
        shop = Shop::open(config) => shop?,
        () = stop.asked() => return Ok(()),
    };
    let address = listener.local_addr()?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    // The limit of a client without a key needs its address.
    let service = routes::router(&shop)?.into_make_service_with_connect_info::<SocketAddr>();
    let (ends, end) = oneshot::channel::<()>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async { drop(end.await) });
    let server = tokio::spawn(server.into_future());
    println!("listening on http://{address}");

    stop.asked().await;
    drop(ends);
    if timeout(GRACE, server).await.is_err() {
        eprintln!("axum-shop: some requests took too long to end, and are cut off");
    }
    shop.close(CLOSE_WITHIN).await;
    Ok(())
}

/// How long requests may take to end when the program is told to.
const GRACE: Duration = Duration::from_secs(5);
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
