//! Extractors.

use std::{
    fmt,
    future::{Ready, ready},
};

use actix_web::{FromRequest, HttpMessage, HttpRequest, HttpResponse, ResponseError, dev::Payload, http::StatusCode};
use latchwork_http::{Rejection, RejectionKind, ResponseFormat, tx::CheckOutError};

use crate::{HeldLock, HeldPermit, LockedTx, RequestHead, answer::answer};

/// A handler asks for a [`HeldLock`], a [`HeldPermit`] or a [`LockedTx`] that no middleware has put there. Answered with 500.
///
/// Where a middleware may let a request pass, ask for an `Option` of it.
///
/// # Examples
///
/// ```
/// use latchwork_actix::{HeldLock, HeldPermit};
///
/// async fn charge(lock: HeldLock, slot: Option<HeldPermit>) -> String {
///     let slot = slot.map(|held| held.slot());
///     format!("charged under {}, in slot {slot:?}", lock.key())
/// }
/// # let _ = actix_web::web::post().to(charge);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingMiddleware {
    what: &'static str,
    format: ResponseFormat,
}

impl MissingMiddleware {
    fn new(what: &'static str, request: &HttpRequest) -> Self {
        let format = ResponseFormat::of(&RequestHead::from(request));
        Self { what, format }
    }
}

impl fmt::Display for MissingMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl std::error::Error for MissingMiddleware {}

impl ResponseError for MissingMiddleware {
    fn status_code(&self) -> StatusCode {
        self.error_response().status()
    }

    fn error_response(&self) -> HttpResponse {
        let rejection = Rejection::new(RejectionKind::Setup).with_detail(self.what);
        answer(&rejection.response(self.format))
    }
}

macro_rules! extractor {
    ($held:ty, $what:expr) => {
        impl FromRequest for $held {
            type Error = MissingMiddleware;
            type Future = Ready<Result<Self, Self::Error>>;

            fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
                let held = request.extensions().get::<Self>().cloned();
                ready(held.ok_or_else(|| MissingMiddleware::new($what, request)))
            }
        }
    };
}

extractor!(
    HeldLock,
    "the handler asks for a HeldLock, but no LockMiddleware is around it, or the middleware lets this request pass \
     without a lock"
);
extractor!(
    HeldPermit,
    "the handler asks for a HeldPermit, but no SlotMiddleware is around it, or the middleware lets this request pass \
     without a slot"
);

impl<Tx: Send + 'static> FromRequest for LockedTx<Tx> {
    type Error = NoTransaction;
    type Future = Ready<Result<Self, Self::Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(match Self::take_from(request) {
            Ok(Some(transaction)) => Ok(transaction),
            Ok(None) => Err(NoTransaction::Missing(MissingMiddleware::new(NO_TRANSACTION, request))),
            Err(error) => Err(NoTransaction::Taken {
                error,
                format: ResponseFormat::of(&RequestHead::from(request)),
            }),
        })
    }
}

/// A handler asks for a [`LockedTx`] that it cannot have. Answered with 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoTransaction {
    /// No middleware has put one there, or none of that type.
    Missing(MissingMiddleware),
    /// It is in use, as by a middleware that still has it, or by another argument of the handler.
    Taken {
        /// Why it cannot be taken.
        error: CheckOutError,
        /// The form that the request is answered in.
        format: ResponseFormat,
    },
}

impl fmt::Display for NoTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(missing) => missing.fmt(f),
            Self::Taken { error, .. } => error.fmt(f),
        }
    }
}

impl std::error::Error for NoTransaction {}

impl ResponseError for NoTransaction {
    fn status_code(&self) -> StatusCode {
        self.error_response().status()
    }

    fn error_response(&self) -> HttpResponse {
        match self {
            Self::Missing(missing) => missing.error_response(),
            Self::Taken { error, format } => {
                let rejection = Rejection::new(RejectionKind::TransactionInUse).with_detail(error.to_string());
                answer(&rejection.response(*format))
            }
        }
    }
}

const NO_TRANSACTION: &str = "the handler asks for a LockedTx, but no TxLockMiddleware is around it that makes transactions of \
     this type, or the middleware lets this request pass without one";
