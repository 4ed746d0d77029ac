use http::StatusCode;

use crate::slot::Capacity;

/// What kind of refusal it is. It is in the extensions of the response, for middleware outside that counts or logs.
///
/// | kind | status | gRPC |
/// |---|---|---|
/// | `LockBusy` | 409 | `ABORTED` |
/// | `SlotsFull(Capacity::PerClient)`, `RateLimited` | 429 | `RESOURCE_EXHAUSTED` |
/// | `SlotsFull(Capacity::Global)` | 503 | `RESOURCE_EXHAUSTED` |
/// | `Unavailable`, `LockLost`, `TransactionLost` | 503 | `UNAVAILABLE` |
/// | `BadKey`, `BadIdempotencyKey`, `BodyIncomplete` | 400 | `INVALID_ARGUMENT` |
/// | `IdempotencyInFlight` | 409 | `ABORTED` |
/// | `IdempotencyResponseGone`, `IdempotencyUnknown` | 409 | `FAILED_PRECONDITION` |
/// | `IdempotencyMismatch` | 422 | `FAILED_PRECONDITION` |
/// | `BodyTooLarge` | 413 | `OUT_OF_RANGE` |
/// | `Setup`, `TransactionInUse`, `TransactionFailed` | 500 | `INTERNAL` |
/// | `TransactionUnknown` | 500 | `UNKNOWN` |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// Others hold the lock.
    LockBusy,
    /// All slots are taken.
    SlotsFull(Capacity),
    /// The client has asked too often.
    RateLimited,
    /// The lock server can't be reached, does not answer, or fails. Nothing is known of the key: never reported as
    /// busy.
    Unavailable,
    /// The lock was lost while the handler ran, and the handler was cancelled.
    LockLost,
    /// The request has no usable key.
    BadKey,
    /// The service is set up wrong.
    Setup,
    /// The request's `Idempotency-Key` is missing or no key.
    BadIdempotencyKey,
    /// A request with the same `Idempotency-Key` is being worked on.
    IdempotencyInFlight,
    /// The `Idempotency-Key` was used for another request.
    IdempotencyMismatch,
    /// The request was worked on before, and its response was not kept: it was too large, or a stream.
    IdempotencyResponseGone,
    /// The request was worked on before, and it is not known to what end: the work was interrupted.
    IdempotencyUnknown,
    /// The request's body ended before all of it was there.
    BodyIncomplete,
    /// The request's body is larger than the policy reads.
    BodyTooLarge,
    /// The handler has answered while its transaction was still in use elsewhere. It is rolled back.
    TransactionInUse,
    /// The handler has answered, but the server did not commit its transaction. Nothing was stored.
    TransactionFailed,
    /// The handler has answered, but the connection had ended before COMMIT. Nothing was stored.
    TransactionLost,
    /// The handler has answered, but the connection ended during COMMIT, or the handler had ended the transaction
    /// itself. It is not known whether anything was stored.
    TransactionUnknown,
}

impl RejectionKind {
    /// The HTTP status.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::LockBusy | Self::IdempotencyInFlight | Self::IdempotencyResponseGone | Self::IdempotencyUnknown => {
                StatusCode::CONFLICT
            }
            Self::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlotsFull(Capacity::PerClient) | Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::SlotsFull(Capacity::Global) | Self::Unavailable | Self::LockLost | Self::TransactionLost => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::BadKey | Self::BadIdempotencyKey | Self::BodyIncomplete => StatusCode::BAD_REQUEST,
            Self::Setup | Self::TransactionInUse | Self::TransactionFailed | Self::TransactionUnknown => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// Whether the handler may have done its work, or a part of it, all the same.
    pub(crate) const fn comes_after_the_handler(self) -> bool {
        matches!(
            self,
            Self::LockLost
                | Self::TransactionInUse
                | Self::TransactionFailed
                | Self::TransactionLost
                | Self::TransactionUnknown
        )
    }

    /// Whether the same request can succeed later, so that the answer says when to ask again.
    pub(super) const fn is_passing(self) -> bool {
        matches!(
            self,
            Self::LockBusy
                | Self::SlotsFull(_)
                | Self::RateLimited
                | Self::Unavailable
                | Self::LockLost
                | Self::TransactionLost
                | Self::IdempotencyInFlight
        )
    }

    /// The problem's type, which programs tell problems apart by (RFC 9457).
    pub(super) const fn problem_type(self) -> &'static str {
        match self {
            Self::LockBusy => "urn:latchwork:problem:lock-busy",
            Self::SlotsFull(_) => "urn:latchwork:problem:slots-full",
            Self::RateLimited => "urn:latchwork:problem:rate-limited",
            Self::Unavailable => "urn:latchwork:problem:unavailable",
            Self::LockLost => "urn:latchwork:problem:lock-lost",
            Self::BadKey => "urn:latchwork:problem:bad-key",
            Self::Setup => "urn:latchwork:problem:setup",
            Self::BadIdempotencyKey => "urn:latchwork:problem:bad-idempotency-key",
            Self::IdempotencyInFlight => "urn:latchwork:problem:idempotency-in-flight",
            Self::IdempotencyMismatch => "urn:latchwork:problem:idempotency-mismatch",
            Self::IdempotencyResponseGone => "urn:latchwork:problem:idempotency-response-gone",
            Self::IdempotencyUnknown => "urn:latchwork:problem:idempotency-unknown",
            Self::BodyIncomplete => "urn:latchwork:problem:body-incomplete",
            Self::BodyTooLarge => "urn:latchwork:problem:body-too-large",
            Self::TransactionInUse => "urn:latchwork:problem:transaction-in-use",
            Self::TransactionFailed => "urn:latchwork:problem:transaction-failed",
            Self::TransactionLost => "urn:latchwork:problem:transaction-lost",
            Self::TransactionUnknown => "urn:latchwork:problem:transaction-unknown",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::LockBusy => "The resource is in use",
            Self::SlotsFull(Capacity::PerClient) => "Too many requests at once",
            Self::SlotsFull(Capacity::Global) => "The service is at its capacity",
            Self::RateLimited => "Too many requests",
            Self::Unavailable => "The service cannot coordinate requests right now",
            Self::LockLost => "The request was cancelled",
            Self::BadKey => "The request does not say what it is for",
            Self::Setup => "The service is set up wrong",
            Self::BadIdempotencyKey => "The request needs one Idempotency-Key",
            Self::IdempotencyInFlight => "The same request is being worked on",
            Self::IdempotencyMismatch => "The Idempotency-Key was used for another request",
            Self::IdempotencyResponseGone => "The request was worked on before",
            Self::IdempotencyUnknown => "It is not known how the request's first attempt ended",
            Self::BodyIncomplete => "The request is not complete",
            Self::BodyTooLarge => "The request is too large",
            Self::TransactionInUse => "The request's work was not finished",
            Self::TransactionFailed | Self::TransactionLost => "The request's work was not stored",
            Self::TransactionUnknown => "It is not known whether the request's work was stored",
        }
    }

    pub(super) const fn detail(self) -> &'static str {
        match self {
            Self::LockBusy => "another request is working on the same resource; ask again later",
            Self::SlotsFull(Capacity::PerClient) => {
                "as many requests of this client as allowed are running; ask again when one has ended"
            }
            Self::SlotsFull(Capacity::Global) => {
                "as many requests as the service can take are running; ask again later"
            }
            Self::RateLimited => "this client has asked more often than it may; ask again later",
            Self::Unavailable => "the service's lock server did not give an answer; ask again later",
            Self::LockLost => "the resource could no longer be kept for this request, and its work was stopped midway",
            Self::BadKey => "the request lacks what its key is made of",
            Self::BadIdempotencyKey => "send the header Idempotency-Key with a value of its own for each request",
            Self::IdempotencyInFlight => "a request with the same Idempotency-Key has not ended yet; ask again later",
            Self::IdempotencyMismatch => {
                "take a new Idempotency-Key for a new request, and repeat an old one unchanged"
            }
            Self::IdempotencyResponseGone => {
                "the request has been carried out; its response was too large to be kept, or a stream"
            }
            Self::IdempotencyUnknown => {
                "the request's first attempt was interrupted and may have had its effects; look before you take a new key"
            }
            Self::BodyIncomplete => "the request's body ended early",
            Self::BodyTooLarge => "the service reads no body of this size here",
            Self::Setup => {
                "the service cannot serve any request like this one as it is set up; its operator has to change it"
            }
            Self::TransactionInUse => {
                "the service answered while its work was still going on, so that nothing was stored; its operator has to change it"
            }
            Self::TransactionFailed => "the database did not accept the request's work, and nothing was stored",
            Self::TransactionLost => {
                "the database was lost before the request's work was stored, and nothing was stored; ask again later"
            }
            Self::TransactionUnknown => {
                "the database did not say whether it has stored the request's work; look before you ask again"
            }
        }
    }
}
