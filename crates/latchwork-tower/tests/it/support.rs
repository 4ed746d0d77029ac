//! A server for the tests, and what else they share.

use std::net::SocketAddr;

use axum::Router;
use latchwork_core::{Key, Locks};
use latchwork_harness::http::PATIENCE;
pub(crate) use latchwork_harness::http::{
    Client, Event, Leave, Stage, WAYS_TO_LEAVE, Watcher, ask, ask_with, in_time, stage,
};
use tokio::net::TcpListener;

pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

/// Waits until nobody holds the key.
pub(crate) async fn is_free(locks: &Locks, key: Key) {
    drop(in_time(locks.acquire(key).within(PATIENCE)).await.unwrap());
}

pub(crate) async fn is_held(locks: &Locks, key: Key) -> bool {
    locks.try_acquire(key).await.unwrap().is_none()
}
