//! Why a request was not let in, and what it is answered.

mod grpc;
mod problem;

use std::{borrow::Cow, error::Error, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use latchwork_core::AcquireError;

use crate::{ExtractError, ResponseFormat, slot::Capacity, tx::TxError};

/// What kind of refusal it is. It is in the extensions of the response, for middleware outside that counts or logs.
///
/// | kind | status | gRPC |
/// |---|---|---|
/// | `LockBusy` | 409 | `ABORTED` |
/// | `SlotsFull(Capacity::PerClient)`, `RateLimited` | 429 | `RESOURCE_EXHAUSTED` |
/// | `SlotsFull(Capacity::Global)` | 503 | `RESOURCE_EXHAUSTED` |
/// | `Unavailable`, `LockLost` | 503 | `UNAVAILABLE` |
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
    /// The lock server can't be reached, does not answer, or fails. Nothing is known of the key: never reported as busy.
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
            Self::SlotsFull(Capacity::Global) | Self::Unavailable | Self::LockLost => StatusCode::SERVICE_UNAVAILABLE,
            Self::BadKey | Self::BadIdempotencyKey | Self::BodyIncomplete => StatusCode::BAD_REQUEST,
            Self::Setup | Self::TransactionInUse | Self::TransactionFailed | Self::TransactionUnknown => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// Whether the handler may have done its work, or a part of it, all the same.
    #[must_use]
    pub const fn comes_after_the_handler(self) -> bool {
        matches!(
            self,
            Self::LockLost | Self::TransactionInUse | Self::TransactionFailed | Self::TransactionUnknown
        )
    }

    /// Whether the same request can succeed later, so that the answer says when to ask again.
    const fn is_passing(self) -> bool {
        matches!(
            self,
            Self::LockBusy
                | Self::SlotsFull(_)
                | Self::RateLimited
                | Self::Unavailable
                | Self::LockLost
                | Self::IdempotencyInFlight
        )
    }

    /// The problem's type, which programs tell problems apart by (RFC 9457).
    const fn problem_type(self) -> &'static str {
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
            Self::TransactionUnknown => "urn:latchwork:problem:transaction-unknown",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::LockBusy => "The resource is in use",
            Self::SlotsFull(Capacity::PerClient) => "Too many requests at once",
            Self::SlotsFull(Capacity::Global) => "The service is at its capacity",
            Self::RateLimited => "Too many requests",
            Self::Unavailable => "The service cannot coordinate requests right now",
            Self::LockLost => "The request was cancelled",
            Self::BadKey => "The request does not say what it is for",
            Self::Setup => "The service is set up wrong",
            Self::BadIdempotencyKey => "The request needs an Idempotency-Key",
            Self::IdempotencyInFlight => "The same request is being worked on",
            Self::IdempotencyMismatch => "The Idempotency-Key was used for another request",
            Self::IdempotencyResponseGone => "The request was worked on before",
            Self::IdempotencyUnknown => "It is not known how the request's first attempt ended",
            Self::BodyIncomplete => "The request is not complete",
            Self::BodyTooLarge => "The request is too large",
            Self::TransactionInUse => "The request's work was not finished",
            Self::TransactionFailed => "The request's work was not stored",
            Self::TransactionUnknown => "It is not known whether the request's work was stored",
        }
    }

    const fn detail(self) -> &'static str {
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
            Self::TransactionUnknown => {
                "the database did not say whether it has stored the request's work; look before you ask again"
            }
        }
    }
}

/// A request that was not let in.
///
/// Its answer names neither keys nor servers. What the engine or the database said is in [`source`](Error::source), for logs.
#[derive(Clone, Debug)]
pub struct Rejection {
    kind: RejectionKind,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Rejection {
    /// A refusal with the usual text.
    #[must_use]
    pub fn new(kind: RejectionKind) -> Self {
        Self {
            kind,
            detail: Cow::Borrowed(kind.detail()),
            retry_after: kind.is_passing().then_some(DEFAULT_RETRY_AFTER),
            source: None,
        }
    }

    /// Tells the client when to ask again. The header holds whole seconds, rounded up, and at least 1.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Replaces the sentence that tells the client what happened.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = detail.into();
        self
    }

    /// What an acquire that has failed means; `busy` is what it means that others were there all the time.
    pub(crate) fn from_acquire(error: AcquireError, busy: RejectionKind) -> Self {
        match error {
            AcquireError::TimedOut { .. } => Self::new(busy),
            AcquireError::Key(error) => ExtractError::from_key(&error).into(),
            error => Self::new(RejectionKind::Unavailable).with_source(error),
        }
    }

    /// What it means that a transaction could not be begun or read by.
    pub(crate) fn from_begin(error: TxError) -> Self {
        match error {
            TxError::Setup(_) => Self::new(RejectionKind::Setup),
            _ => Self::new(RejectionKind::Unavailable),
        }
        .with_source(error)
    }

    /// What a commit that has failed means.
    pub(crate) fn from_end(error: TxError) -> Self {
        let kind = match error {
            TxError::Unavailable(_) => RejectionKind::Unavailable,
            TxError::OutcomeUnknown(_) => RejectionKind::TransactionUnknown,
            TxError::Aborted(_) | TxError::Other(_) => RejectionKind::TransactionFailed,
            TxError::Setup(_) => RejectionKind::Setup,
        };
        Self::new(kind).with_source(error)
    }

    /// Says that asking again is of no use.
    pub(crate) fn never(mut self, detail: &'static str) -> Self {
        self.retry_after = None;
        self.with_detail(detail)
    }

    pub(crate) fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What kind of refusal it is.
    #[must_use]
    pub const fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// The sentence that tells the client what happened.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The HTTP status. A gRPC call is answered with 200 and a gRPC status all the same.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.kind.status()
    }

    /// The whole seconds after which the client may ask again: at least 1.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        let after = self.retry_after?;
        let begun = u64::from(after.subsec_nanos() > 0);
        Some(after.as_secs().saturating_add(begun).max(1))
    }

    pub(crate) fn or_retry_after(mut self, after: Duration) -> Self {
        if self.kind.is_passing() {
            self.retry_after = Some(after);
        }
        self
    }

    /// The answer: problem+json (RFC 9457), or a gRPC status.
    #[must_use]
    pub fn response(&self, format: ResponseFormat) -> Response<Bytes> {
        let mut response = match format {
            ResponseFormat::Problem => problem::response(self),
            ResponseFormat::Grpc => grpc::response(self),
        };
        if let Some(seconds) = self.retry_after() {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<ExtractError> for Rejection {
    fn from(error: ExtractError) -> Self {
        let kind = if error.is_setup() {
            RejectionKind::Setup
        } else {
            RejectionKind::BadKey
        };
        Self::new(kind).with_detail(error.into_detail())
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Error for Rejection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|error| error as _)
    }
}

const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [RejectionKind; 10] = [
        RejectionKind::LockBusy,
        RejectionKind::SlotsFull(Capacity::PerClient),
        RejectionKind::SlotsFull(Capacity::Global),
        RejectionKind::Unavailable,
        RejectionKind::LockLost,
        RejectionKind::BadKey,
        RejectionKind::Setup,
        RejectionKind::TransactionInUse,
        RejectionKind::TransactionFailed,
        RejectionKind::TransactionUnknown,
    ];

    fn header<'a>(response: &'a Response<Bytes>, name: &str) -> Option<&'a str> {
        response.headers().get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn each_kind_has_its_status_in_http_and_in_grpc() {
        let seen = KINDS.map(|kind| {
            let rejection = Rejection::new(kind);
            let problem = rejection.response(ResponseFormat::Problem);
            let grpc = rejection.response(ResponseFormat::Grpc);
            assert_eq!(grpc.status(), 200);
            assert_eq!(header(&grpc, "content-type"), Some("application/grpc"));
            assert!(grpc.body().is_empty());
            let status = header(&grpc, "grpc-status").unwrap().parse::<u8>().unwrap();
            (
                problem.status().as_u16(),
                status,
                header(&problem, "retry-after").is_some(),
            )
        });
        let expected = [
            (409, 10, true),
            (429, 8, true),
            (503, 8, true),
            (503, 14, true),
            (503, 14, true),
            (400, 3, false),
            (500, 13, false),
            (500, 13, false),
            (500, 13, false),
            (500, 2, false),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn problems_are_json_with_the_members_of_the_rfc() {
        for kind in KINDS {
            let rejection = Rejection::new(kind).with_detail("say \"what\"\\ and\u{1}\n ö");
            let response = rejection.response(ResponseFormat::Problem);
            assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
            let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            assert_eq!(body["type"], kind.problem_type());
            assert_eq!(body["title"], kind.title());
            assert_eq!(body["status"], response.status().as_u16());
            assert_eq!(body["detail"], rejection.detail());
            assert_eq!(body.as_object().unwrap().len(), 4);
        }
    }

    #[test]
    fn retry_after_is_whole_seconds_rounded_up_and_at_least_one() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (2999, 3)] {
            let rejection = Rejection::new(RejectionKind::LockBusy).with_retry_after(Duration::from_millis(millis));
            assert_eq!(rejection.retry_after(), Some(seconds));
        }
        let forever = Rejection::new(RejectionKind::LockBusy).with_retry_after(Duration::MAX);
        assert_eq!(forever.retry_after(), Some(u64::MAX));
    }

    #[test]
    fn a_grpc_message_is_percent_encoded() {
        let rejection = Rejection::new(RejectionKind::BadKey).with_detail("100% ö\n");
        let response = rejection.response(ResponseFormat::Grpc);
        assert_eq!(header(&response, "grpc-message"), Some("100%25 %C3%B6%0A"));
    }
}
