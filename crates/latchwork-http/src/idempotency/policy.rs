use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, Response, header};
use latchwork_core::{Locks, Namespace};

use super::{
    begin::Begin,
    digest::{Fingerprint, RecordId},
    header::idempotency_key,
    record::{KEPT_BY_DEFAULT, REPLAYED},
    sweep::Sweeper,
};
use crate::{
    ExtractKey, OnDisconnect, Rejection, RejectionKind, RequestView, ResponseFormat, ResponseView, SetupError,
    key::KeyParts,
    lock::DEFAULT_ANSWER_WITHIN,
    refusal::Refusal,
    tx::{TxProvider, ends_well},
    view::single_header,
};

/// Works on each `Idempotency-Key` once, and answers those who repeat it with the first response.
///
/// `V` is the request as the framework shows it, `P` what opens the transactions.
pub struct IdempotencyPolicy<V, P> {
    provider: P,
    principal: Arc<dyn ExtractKey<V>>,
    namespace: Namespace,
    required: bool,
    methods: Vec<String>,
    external: Option<Locks>,
    max_request_body: usize,
    commit_when: CommitWhen,
    on_disconnect: OnDisconnect,
    refusal: Refusal,
    pub(super) terms: Terms,
}

/// What is the same for all requests of a policy, once they have begun.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) kept_headers: Arc<[HeaderName]>,
    pub(super) max_response_body: usize,
    pub(super) retention: Duration,
    pub(super) wait: Option<Duration>,
    pub(super) answer_within: Duration,
    pub(super) retry_after: Duration,
    pub(super) sweeper: Arc<Sweeper>,
}

type CommitWhen = Arc<dyn Fn(&dyn ResponseView) -> bool + Send + Sync>;

/// A request that has an `Idempotency-Key`, as far as its headers say.
#[derive(Clone, Debug)]
pub struct IdempotentRequest {
    id: RecordId,
    target: String,
    content_type: Vec<u8>,
}

const MEBIBYTE: usize = 1 << 20;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const CENTURY: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

impl<V: 'static, P: TxProvider> IdempotencyPolicy<V, P> {
    /// Keys of one principal are not those of another: `principal` says who asks, such as the user that was authenticated
    /// before. Those for whom it says nothing are one principal together. By default POST and PATCH need a key, and other
    /// methods pass.
    ///
    /// # Errors
    ///
    /// [`SetupError`] if the extractor can never work.
    pub fn new(provider: impl Into<P>, principal: impl ExtractKey<V>) -> Result<Self, SetupError> {
        principal.validate()?;
        Ok(Self {
            provider: provider.into(),
            principal: Arc::new(principal),
            namespace: Namespace::unnamed(),
            required: true,
            methods: ["POST", "PATCH"].map(str::to_owned).into(),
            external: None,
            max_request_body: MEBIBYTE,
            commit_when: Arc::new(ends_well),
            on_disconnect: OnDisconnect::Complete,
            refusal: Refusal::default(),
            terms: Terms {
                kept_headers: KEPT_BY_DEFAULT.into(),
                max_response_body: MEBIBYTE,
                retention: DAY,
                wait: None,
                answer_within: DEFAULT_ANSWER_WITHIN,
                retry_after: Refusal::default().retry_after,
                sweeper: Arc::default(),
            },
        })
    }

    /// Keeps the records apart from those of another namespace. Default: the unnamed one. Give each service one of its
    /// own where several share a database, and the same client may send the same key to more than one of them.
    #[must_use]
    pub fn namespace(self, namespace: Namespace) -> Self {
        Self { namespace, ..self }
    }

    /// Lets requests without a key pass, with no transaction. Default: they are answered with 400.
    #[must_use]
    pub fn optional(self) -> Self {
        Self {
            required: false,
            ..self
        }
    }

    /// Sets the methods whose requests have keys. Default: POST and PATCH. Others pass. `post` means `POST`.
    #[must_use]
    pub fn methods<'a>(self, methods: impl IntoIterator<Item = &'a str>) -> Self {
        let methods = methods.into_iter().map(str::to_ascii_uppercase).collect();
        Self { methods, ..self }
    }

    /// For handlers that work outside of the database, such as on another service: they run in no transaction. The
    /// claim is stored before the handler runs, and its response after; while it runs, a lock of session scope says so.
    ///
    /// If the process dies in between, the handler fails or is stopped midway, or its response cannot be stored, nobody
    /// knows what it has done: whoever repeats the key is told so with 409, and the handler does not run again. A
    /// response that does not [count as success](Self::commit_when) takes the claim back, and whoever repeats the key
    /// runs the handler again: let a 504 of the other service, which says nothing of what was done, count as success
    /// there.
    #[must_use]
    pub fn external(self, locks: Locks) -> Self {
        Self {
            external: Some(locks),
            ..self
        }
    }

    /// Waits for a request with the same key that is being worked on, for at most `limit`. Default: it is answered with
    /// 409 at once.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.terms.wait = Some(limit);
        self
    }

    /// Sets how long the database may take over anything but that wait. Default: 5 s.
    #[must_use]
    pub fn answer_within(mut self, limit: Duration) -> Self {
        self.terms.answer_within = limit;
        self
    }

    /// Sets which responses are kept, and commit; the others roll back, and the key can be used again. Default:
    /// [`ends_well`]. What a layer of this library inside answers in the handler's place, such as that a lock is busy, is
    /// never kept.
    #[must_use]
    pub fn commit_when(mut self, commits: impl Fn(&dyn ResponseView) -> bool + Send + Sync + 'static) -> Self {
        self.commit_when = Arc::new(commits);
        self
    }

    /// Keeps one more header of responses. By default those that describe the content and where it is are kept:
    /// `Content-Type`, `Content-Language`, `Content-Encoding`, `Content-Disposition`, `Content-Location`, `Location`,
    /// `Link`, `ETag`, `Last-Modified`.
    ///
    /// # Errors
    ///
    /// [`SetupError::KeptHeader`] for a name that no header can have, and for `Set-Cookie`, which belongs to the first client
    /// alone.
    pub fn keep_header(mut self, name: &str) -> Result<Self, SetupError> {
        let name = HeaderName::from_bytes(name.as_bytes())
            .ok()
            .filter(|name| *name != header::SET_COOKIE && *name != REPLAYED)
            .ok_or_else(|| SetupError::KeptHeader { name: name.to_owned() })?;
        let mut kept = self.terms.kept_headers.to_vec();
        if !kept.contains(&name) {
            kept.push(name);
        }
        self.terms.kept_headers = kept.into();
        Ok(self)
    }

    /// Sets how many bytes a request's body may have; it is read whole before the handler runs, and a larger one
    /// answered with 413, as soon as it is announced to be larger or has turned out to be. Default: 1 MiB.
    #[must_use]
    pub fn max_request_body(self, bytes: usize) -> Self {
        Self {
            max_request_body: bytes,
            ..self
        }
    }

    /// Sets how many bytes a response's body may have to be kept. Of a larger one, or one whose size is not known when its
    /// headers leave, is kept that it was: whoever repeats the key gets 409. Default: 1 MiB.
    #[must_use]
    pub fn max_response_body(mut self, bytes: usize) -> Self {
        self.terms.max_response_body = bytes;
        self
    }

    /// Sets for how long responses are kept, at most 100 years. Default: 24 h.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        // Beyond the years that the server can count, no response could be kept.
        self.terms.retention = retention.min(CENTURY);
        self
    }

    /// Sets what becomes of a handler whose client leaves. Default: it runs to its end, so that the client finds its
    /// response when it asks again.
    #[must_use]
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> Self {
        Self { on_disconnect, ..self }
    }

    /// Sets after how long those who are refused may ask again. Default: 1 s. The header holds whole seconds.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.terms.retry_after = after;
        self
    }

    /// Replaces the answers to those who are refused. The closure is given the usual answer, to keep or to change.
    #[must_use]
    pub fn on_reject(
        mut self,
        replace: impl Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
    ) -> Self {
        self.refusal.on_reject = Some(Arc::new(replace));
        self
    }

    /// What becomes of a handler whose client leaves.
    #[must_use]
    pub const fn disconnect(&self) -> OnDisconnect {
        self.on_disconnect
    }

    /// How many bytes of a request's body are to be read at most.
    #[must_use]
    pub const fn request_cap(&self) -> usize {
        self.max_request_body
    }

    /// How many bytes of a response's body are to be read at most.
    #[must_use]
    pub const fn response_cap(&self) -> usize {
        self.terms.max_response_body
    }

    /// Reads the headers of a request; `None` if it passes without a key. `query` is the query of its target, if any.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] if the request has no usable key, or nobody can say who asks.
    pub fn request(&self, view: &V, query: Option<&str>) -> Result<Option<IdempotentRequest>, Rejection>
    where
        V: RequestView,
    {
        if self.refusal.leaves_alone(view) || !self.methods.iter().any(|method| method == view.method()) {
            return Ok(None);
        }
        let malformed = |detail| Rejection::new(RejectionKind::BadIdempotencyKey).with_detail(detail);
        let key = match idempotency_key(view).map_err(|malformation| malformed(malformation.detail()))? {
            Some(key) => key,
            None if self.required => return Err(Rejection::new(RejectionKind::BadIdempotencyKey)),
            None => return Ok(None),
        };
        let mut principal = KeyParts::default();
        // A request of nobody has a scope of its own.
        let _ = self.principal.extract(view, &mut principal)?;
        let route = view.matched_route();
        let route = route.as_deref().unwrap_or_else(|| view.path());
        Ok(Some(IdempotentRequest {
            id: RecordId::new(&self.namespace, principal.iter(), view.method(), route, &key),
            target: format!("{}?{}", view.path(), query.unwrap_or_default()),
            content_type: single_header(view, "content-type").ok().flatten().unwrap_or_default(),
        }))
    }

    /// Begins to work on a request whose `body` was read.
    pub fn begin(&self, request: &IdempotentRequest, body: &[u8]) -> Begin<P> {
        let fingerprint = Fingerprint::new(&request.target, &request.content_type, body);
        Begin::new(
            self.provider.clone(),
            self.external.clone(),
            request.id,
            fingerprint,
            self.terms.clone(),
        )
    }

    /// Whether a response is kept, and commits.
    #[must_use]
    pub fn commits(&self, response: &dyn ResponseView) -> bool {
        (self.commit_when)(response)
    }

    /// The answer to a request that is refused, or whose response could not be kept.
    #[must_use]
    pub fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.refusal.respond(rejection, format)
    }
}

/// By hand, since the request itself need not be `Clone`.
impl<V, P: Clone> Clone for IdempotencyPolicy<V, P> {
    fn clone(&self) -> Self {
        Self {
            provider: self.provider.clone(),
            principal: Arc::clone(&self.principal),
            namespace: self.namespace.clone(),
            required: self.required,
            methods: self.methods.clone(),
            external: self.external.clone(),
            max_request_body: self.max_request_body,
            commit_when: Arc::clone(&self.commit_when),
            on_disconnect: self.on_disconnect,
            refusal: self.refusal.clone(),
            terms: self.terms.clone(),
        }
    }
}

impl<V, P> fmt::Debug for IdempotencyPolicy<V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyPolicy")
            .field("principal", &self.principal)
            .field("namespace", &self.namespace)
            .field("required", &self.required)
            .field("methods", &self.methods)
            .field("external", &self.external)
            .field("max_request_body", &self.max_request_body)
            .field("on_disconnect", &self.on_disconnect)
            .field("refusal", &self.refusal)
            .field("terms", &self.terms)
            .finish_non_exhaustive()
    }
}
