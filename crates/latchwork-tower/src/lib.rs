//! Tower layers for latchwork: a lock, a slot or a transaction for each request, rate limits and idempotency keys, on
//! axum, tonic and plain hyper.
//!
//! - [`LockLayer`]: while a handler runs, its request holds a key. Others get 409.
//! - [`TxLockLayer`]: a request has a transaction that holds a key, and is stored before it is answered, or not at all.
//! - [`SlotLayer`]: at most so many requests at once, over all instances. Others get 429 or 503.
//! - [`RateLimitLayer`]: so many requests of one client in so much time, over all instances. Others get 429.
//! - [`IdempotencyLayer`]: each `Idempotency-Key` is worked on once, and whoever repeats it gets the first response.
//!
//! All take a key from the request by the extractors in [`key`], refuse with problem+json or, for gRPC calls, a gRPC
//! status, and never fail themselves: the error type is the inner service's, so axum needs no `HandleErrorLayer`.
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `axum` | yes | the extractors [`HeldLock`], [`HeldPermit`] and [`LockedTx`]; keys from axum's matched route, peer and original path |
//!
//! # Examples
//!
//! ```
//! use axum::{Router, routing::post};
//! use latchwork_core::Locks;
//! use latchwork_tower::{LockLayer, SlotLayer, key::param};
//!
//! # fn app() -> Result<Router, Box<dyn std::error::Error>> {
//! let locks = Locks::in_memory();
//! let app = Router::new()
//!     .route("/orders/{id}/charge", post(|| async { "charged" }))
//!     .route_layer(LockLayer::new(locks.clone(), ("order", param("id")))?)
//!     .route("/ai", post(|| async { "a slow answer" }).layer(SlotLayer::global(locks.slots("ai", 5)?)));
//! # Ok(app)
//! # }
//! # app().unwrap();
//! ```

mod admission;
#[cfg(feature = "axum")]
mod axum;
mod body;
mod head;
pub mod idempotency;
mod inner;
pub mod key;
pub mod lock;
pub mod rate;
mod run;
pub mod slot;
pub mod tx;

#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "axum")]
pub use self::axum::{MissingLayer, NoTransaction};
pub use body::PolicyBody;
pub use head::RequestHead;
pub use idempotency::{IdempotencyLayer, IdempotencyService};
pub use latchwork_http::{
    Capacity, ExtractError, IdempotencyPolicy, LockMode, LockPolicy, MatchedRoute, OnDisconnect, Peer, RateLimitPolicy,
    Rejection, RejectionKind, ResponseFormat, ResponseView, SetupError, SlotPolicy, TxLockPolicy, TxProvider, bytes,
    http, rate::RateHeaders,
};
pub use lock::{HeldLock, LockLayer, LockService};
pub use rate::{RateLimitLayer, RateLimitService};
pub use slot::{HeldPermit, SlotLayer, SlotService};
pub use tx::{LockedTx, TxLockLayer, TxLockService};
