//! actix-web middleware for latchwork: a lock, a slot or a transaction for each request, rate limits and idempotency keys,
//! over all workers and instances.
//!
//! - [`LockMiddleware`]: while a handler runs, its request holds a key. Others get 409.
//! - [`TxLockMiddleware`]: a request has a transaction that holds a key, and is stored before it is answered, or not at
//!   all.
//! - [`SlotMiddleware`]: at most so many requests at once, over all instances. Others get 429 or 503.
//! - [`RateLimitMiddleware`]: so many requests of one client in so much time, over all instances. Others get 429.
//! - [`IdempotencyMiddleware`]: each `Idempotency-Key` is worked on once. Who repeats it is given the first response.
//!
//! All take a key from the request by the extractors in [`key`], refuse with problem+json or, for gRPC calls, a gRPC
//! status, and go around an app, a scope, a resource or a route with `wrap`. What latchwork-tower calls a layer is a
//! middleware here; everything else has the same name and the same default.
//!
//! Make a middleware once, outside of the closure that [`HttpServer`](actix_web::HttpServer) calls for each worker, and
//! clone it there: what cannot work is then an error at the start, and the workers share one value.
//!
//! # When a client leaves
//!
//! | server | client closes its connection, or its half of it | connection reset |
//! |---|---|---|
//! | HTTP/1, as actix-web has it by default | the handler runs on: the client may still read | handler dropped at once |
//! | HTTP/1 with [`h1_allow_half_closed(false)`](actix_web::HttpServer::h1_allow_half_closed) | handler dropped at once | handler dropped at once |
//! | HTTP/2 | the handler runs on | the handler runs on |
//!
//! What a dropped handler held is given up, and its transaction rolled back. Where handlers run on, a client that has left keeps its lock or slot for as
//! long as its handler runs, or until the response's body cannot be written to it.
//!
//! [`OnDisconnect::Complete`] lets handlers run to their end in any case, but no longer than their worker: a server that
//! is stopped does not wait for handlers whose clients have left. It drops them, and what they held is given up.
//!
//! # Connections of the workers
//!
//! Each worker has a runtime of its own, and a connection ends with the runtime that it was made on. When a server is
//! stopped its idle workers end first. So let the pool of [`TxLockMiddleware`] and [`IdempotencyMiddleware`] make its
//! connections on the program's runtime; for deadpool-postgres `latchwork_postgres::transaction::OnRuntime` does it.
//!
//! # Examples
//!
//! ```no_run
//! use actix_web::{App, HttpServer, web};
//! use latchwork_actix::{HeldPermit, LockMiddleware, SlotMiddleware, key::param};
//! use latchwork_core::Locks;
//!
//! # #[actix_web::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Locks::in_memory();
//! let per_order = LockMiddleware::new(locks.clone(), ("order", param("id")))?;
//! let five = SlotMiddleware::global(locks.slots("ai", 5)?);
//!
//! HttpServer::new(move || {
//!     App::new()
//!         .service(
//!             web::resource("/orders/{id}/charge")
//!                 .wrap(per_order.clone())
//!                 .route(web::post().to(|| async { "charged" })),
//!         )
//!         .service(
//!             web::resource("/ai")
//!                 .wrap(five.clone())
//!                 .route(web::get().to(|held: HeldPermit| async move { format!("slot {}", held.slot()) })),
//!         )
//! })
//! .h1_allow_half_closed(false)
//! .bind(("127.0.0.1", 8080))?
//! .run()
//! .await?;
//! # Ok(())
//! # }
//! ```

mod answer;
mod extract;
mod head;
pub mod idempotency;
pub mod key;
pub mod lock;
pub mod rate;
mod run;
mod service;
pub mod slot;
pub mod tx;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use extract::{MissingMiddleware, NoTransaction};
pub use head::RequestHead;
pub use idempotency::IdempotencyMiddleware;
pub use latchwork_http::{
    Capacity, ExtractError, IdempotencyPolicy, LockMode, LockPolicy, MatchedRoute, OnDisconnect, Peer, RateLimitPolicy,
    Rejection, RejectionKind, ResponseFormat, ResponseView, SetupError, SlotPolicy, TxLockPolicy, TxProvider, bytes,
    http, rate::RateHeaders,
};
pub use lock::{HeldLock, LockMiddleware};
pub use rate::RateLimitMiddleware;
pub use service::{PolicyService, RequestPolicy};
pub use slot::{HeldPermit, SlotMiddleware};
pub use tx::{LockedTx, TxLockMiddleware};
