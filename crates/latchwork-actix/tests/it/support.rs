//! Servers for the tests.

use std::net::SocketAddr;

use actix_web::{App, HttpServer, web::ServiceConfig};
use latchwork_core::{Key, Locks, Slots};
use latchwork_harness::{
    database::FakeTx,
    http::{PATIENCE, in_time},
};

pub(crate) type LockedTx = latchwork_actix::LockedTx<FakeTx>;

/// Starts a server, whose type has no short name.
macro_rules! start {
    ($server:expr) => {{
        // HTTP/1, and HTTP/2 for those who begin with it.
        let server = $server.disable_signals().bind_auto_h2c("127.0.0.1:0").unwrap();
        let address = server.addrs()[0];
        actix_web::rt::spawn(server.run());
        address
    }};
}
pub(crate) use start;

/// Whether a client that has closed its half of the connection may still read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HalfClosed {
    /// As actix-web has it by default.
    Allowed,
    IsGone,
}

/// Serves routes with one worker.
pub(crate) fn serve(routes: impl Fn(&mut ServiceConfig) + Clone + Send + 'static) -> SocketAddr {
    serve_with(HalfClosed::Allowed, routes)
}

pub(crate) fn serve_with(
    half_closed: HalfClosed,
    routes: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
) -> SocketAddr {
    let server = HttpServer::new(move || App::new().configure(&routes)).workers(1);
    start!(match half_closed {
        HalfClosed::Allowed => server,
        HalfClosed::IsGone => server.h1_allow_half_closed(false),
    })
}

/// Waits until nobody holds the key.
pub(crate) async fn is_free(locks: &Locks, key: Key) {
    drop(in_time(locks.acquire(key).within(PATIENCE)).await.unwrap());
}

pub(crate) async fn is_held(locks: &Locks, key: Key) -> bool {
    locks.try_acquire(key).await.unwrap().is_none()
}

/// Waits until all of so many slots are free at once.
pub(crate) async fn are_free(slots: &Slots, number: usize) {
    let mut all = Vec::new();
    for _ in 0..number {
        all.push(in_time(slots.acquire().without_limit()).await.unwrap());
    }
}
