//! Extractors for axum.

use std::{convert::Infallible, error::Error, fmt};

use axum::{
    body::Body,
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::request::Parts;
use latchwork_http::{Rejection, RejectionKind, ResponseFormat};

use crate::{HeldLock, HeldPermit};

/// A handler asks for a [`HeldLock`] or a [`HeldPermit`] that no layer has put there. Answered with 500.
///
/// Where a layer may let a request pass, ask for an `Option` of it.
///
/// # Examples
///
/// ```
/// use latchwork_tower::{HeldLock, HeldPermit};
///
/// async fn charge(lock: HeldLock, slot: Option<HeldPermit>) -> String {
///     let slot = slot.map(|held| held.slot());
///     format!("charged under {}, in slot {slot:?}", lock.key())
/// }
/// # axum::Router::<()>::new().route("/", axum::routing::post(charge));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingLayer {
    what: &'static str,
    format: ResponseFormat,
}

impl MissingLayer {
    fn new(what: &'static str, parts: &Parts) -> Self {
        Self {
            what,
            format: ResponseFormat::of(parts),
        }
    }
}

impl fmt::Display for MissingLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl Error for MissingLayer {}

impl IntoResponse for MissingLayer {
    fn into_response(self) -> Response {
        Rejection::new(RejectionKind::Setup)
            .with_detail(self.what)
            .response(self.format)
            .map(Body::from)
    }
}

macro_rules! extractor {
    ($held:ty, $what:expr) => {
        impl<S: Send + Sync> FromRequestParts<S> for $held {
            type Rejection = MissingLayer;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
                let held = parts.extensions.get().cloned();
                held.ok_or_else(|| MissingLayer::new($what, parts))
            }
        }

        impl<S: Send + Sync> OptionalFromRequestParts<S> for $held {
            type Rejection = Infallible;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
                Ok(parts.extensions.get().cloned())
            }
        }
    };
}

extractor!(
    HeldLock,
    "the handler asks for a HeldLock, but no LockLayer is around it, or the layer lets this request pass without a lock"
);
extractor!(
    HeldPermit,
    "the handler asks for a HeldPermit, but no SlotLayer is around it, or the layer lets this request pass without a slot"
);
