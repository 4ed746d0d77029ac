//! The HTTP request policies of latchwork, with no framework in them: which key a request asks for, what it is
//! answered when it does not get it.
//!
//! Most people use them through an adapter: `latchwork-tower` for axum, tonic and hyper, `latchwork-actix` for
//! actix-web. What is here:
//!
//! - [`RequestView`]: what a policy sees of a request, whichever framework it came in by.
//! - [`ExtractKey`] and the extractors in [`key`]: from a request to a key.
//! - [`LockPolicy`] and [`SlotPolicy`]: plain values that decide, and futures that acquire.
//! - [`UnderLock`]: a handler and its lock, which end together.
//! - [`HeldLock`] and [`HeldPermit`]: what a handler sees of what its request holds.
//! - [`TxLockPolicy`] and the rest of [`tx`]: a transaction for each request, with its lock, on anybody's database
//!   library.
//! - [`RateLimitPolicy`]: so many requests in so much time.
//! - [`IdempotencyPolicy`]: each `Idempotency-Key` is worked on once.
//! - [`Rejection`]: from a refusal to a status, headers, and problem+json or a gRPC status.
//!
//! # Examples
//!
//! ```
//! use http::Request;
//! use latchwork_core::Locks;
//! use latchwork_http::{LockPolicy, ResponseFormat, key::segment};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = LockPolicy::new(Locks::in_memory(), ("order", segment(1)))?;
//! let request = Request::post("/orders/42/charge").body(())?;
//!
//! let guard = policy.attempt(&request)?.expect("not a preflight").await?;
//!
//! let busy = policy.attempt(&request)?.expect("not a preflight").await.unwrap_err();
//! assert_eq!(policy.respond(&busy, ResponseFormat::of(&request)).status(), 409);
//! # drop(guard);
//! # Ok(())
//! # }
//! ```

mod attempt;
mod disconnect;
mod held;
pub mod idempotency;
pub mod key;
mod lock;
pub mod rate;
mod refusal;
mod rejection;
mod slot;
pub mod tx;
mod under_lock;
mod view;
mod wear;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use bytes;
pub use http;

/// What the macros of [`wear`] name; not public API.
#[doc(hidden)]
pub mod __private {
    pub use latchwork_core::{
        Locks, Namespace, Slots, WaitMethod,
        rate::{Quotas, RateLimits},
    };
}

pub use attempt::{LockAttempt, SlotAttempt};
pub use disconnect::OnDisconnect;
pub use held::{HeldLock, HeldPermit, Hold};
pub use idempotency::IdempotencyPolicy;
pub use key::{ExtractError, ExtractKey, SetupError};
pub use lock::{LockMode, LockPolicy};
pub use rate::RateLimitPolicy;
pub use refusal::ResponseFormat;
pub use rejection::{Rejection, RejectionKind};
pub use slot::{Capacity, SlotPolicy};
pub use tx::{TxLockPolicy, TxProvider};
pub use under_lock::{LockLost, UnderLock};
pub use view::{MatchedRoute, Peer, RequestView, ResponseView};
