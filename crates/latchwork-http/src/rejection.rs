//! Why a request was not let in, and what it is answered.

mod grpc;
mod kind;
mod problem;

use std::{borrow::Cow, error::Error, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use latchwork_core::AcquireError;
use tracing::error;

use crate::{ExtractError, ResponseFormat, tx::TxError};

pub use kind::RejectionKind;

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
            TxError::Unavailable(_) => RejectionKind::TransactionLost,
            TxError::OutcomeUnknown(_) => RejectionKind::TransactionUnknown,
            TxError::Aborted(_) | TxError::Other(_) | TxError::Setup(_) => RejectionKind::TransactionFailed,
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

    /// The answer: problem+json (RFC 9457), or a gRPC status. A service that is set up wrong is told so in its log.
    #[must_use]
    pub fn response(&self, format: ResponseFormat) -> Response<Bytes> {
        if self.kind == RejectionKind::Setup {
            let error: &dyn Error = self;
            error!(target: "latchwork::http", error, "the service is set up wrong, and no request like this one can be served");
        }
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
    use crate::slot::Capacity;

    const KINDS: [RejectionKind; 19] = [
        RejectionKind::LockBusy,
        RejectionKind::SlotsFull(Capacity::PerClient),
        RejectionKind::SlotsFull(Capacity::Global),
        RejectionKind::Unavailable,
        RejectionKind::LockLost,
        RejectionKind::BadKey,
        RejectionKind::Setup,
        RejectionKind::TransactionInUse,
        RejectionKind::TransactionFailed,
        RejectionKind::TransactionLost,
        RejectionKind::TransactionUnknown,
        RejectionKind::RateLimited,
        RejectionKind::BadIdempotencyKey,
        RejectionKind::IdempotencyInFlight,
        RejectionKind::IdempotencyMismatch,
        RejectionKind::IdempotencyResponseGone,
        RejectionKind::IdempotencyUnknown,
        RejectionKind::BodyIncomplete,
        RejectionKind::BodyTooLarge,
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
            (503, 14, true),
            (500, 2, false),
            (429, 8, true),
            (400, 3, false),
            (409, 10, true),
            (422, 9, false),
            (409, 9, false),
            (409, 9, false),
            (400, 3, false),
            (413, 11, false),
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
