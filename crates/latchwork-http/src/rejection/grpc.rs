//! A gRPC status in place of an HTTP one: all in the headers, with no body.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::{Rejection, RejectionKind};

pub(super) fn response(rejection: &Rejection) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(code(rejection.kind())));
    let message = utf8_percent_encode(rejection.detail(), RESERVED).to_string();
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert(MESSAGE, message);
    }
    response
}

const fn code(kind: RejectionKind) -> u16 {
    match kind {
        RejectionKind::TransactionUnknown => 2,
        RejectionKind::BadKey | RejectionKind::BadIdempotencyKey | RejectionKind::BodyIncomplete => 3,
        RejectionKind::SlotsFull(_) | RejectionKind::RateLimited => 8,
        RejectionKind::IdempotencyMismatch
        | RejectionKind::IdempotencyResponseGone
        | RejectionKind::IdempotencyUnknown => 9,
        RejectionKind::LockBusy | RejectionKind::IdempotencyInFlight => 10,
        RejectionKind::BodyTooLarge => 11,
        RejectionKind::Setup | RejectionKind::TransactionInUse | RejectionKind::TransactionFailed => 13,
        RejectionKind::Unavailable | RejectionKind::LockLost | RejectionKind::TransactionLost => 14,
    }
}

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// What a message must not hold as it is. Bytes above ASCII are encoded anyway.
const RESERVED: &AsciiSet = &CONTROLS.add(b'%');
