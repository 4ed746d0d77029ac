//! Extractors for axum.

use std::{convert::Infallible, error::Error, fmt};

use axum::{
    body::Body,
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::request::Parts;
use latchwork_http::{Rejection, RejectionKind, ResponseFormat, tx::CheckOutError};

use crate::{HeldLock, HeldPermit, LockedTx};

/// A handler asks for a [`HeldLock`], a [`HeldPermit`] or a [`LockedTx`] that no layer has put there. Answered with 500.
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

impl<Tx: Send + 'static, S: Send + Sync> FromRequestParts<S> for LockedTx<Tx> {
    type Rejection = NoTransaction;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        match Self::take_from(&parts.extensions) {
            Ok(Some(transaction)) => Ok(transaction),
            Ok(None) => Err(NoTransaction::Missing(MissingLayer::new(NO_TRANSACTION, parts))),
            Err(error) => Err(NoTransaction::taken(error, parts)),
        }
    }
}

impl<Tx: Send + 'static, S: Send + Sync> OptionalFromRequestParts<S> for LockedTx<Tx> {
    type Rejection = NoTransaction;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Self::take_from(&parts.extensions).map_err(|error| NoTransaction::taken(error, parts))
    }
}

/// A handler asks for a [`LockedTx`] that it cannot have. Answered with 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoTransaction {
    /// No layer has put one there, or none of that type.
    Missing(MissingLayer),
    /// It is in use, as by a middleware that still has it, or by another argument of the handler.
    Taken {
        /// Why it cannot be taken.
        error: CheckOutError,
        /// The form that the request is answered in.
        format: ResponseFormat,
    },
}

impl NoTransaction {
    fn taken(error: CheckOutError, parts: &Parts) -> Self {
        let format = ResponseFormat::of(parts);
        Self::Taken { error, format }
    }
}

impl fmt::Display for NoTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Taken { error, .. } => error.fmt(f),
        }
    }
}

impl Error for NoTransaction {}

impl IntoResponse for NoTransaction {
    fn into_response(self) -> Response {
        match self {
            Self::Missing(missing) => missing.into_response(),
            Self::Taken { error, format } => Rejection::new(RejectionKind::TransactionInUse)
                .with_detail(error.to_string())
                .response(format)
                .map(Body::from),
        }
    }
}

const NO_TRANSACTION: &str = "the handler asks for a LockedTx, but no TxLockLayer is around it that makes transactions of \
     this type, or the layer lets this request pass without one";
