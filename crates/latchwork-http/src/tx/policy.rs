use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use latchwork_core::Namespace;

use super::{OpenTx, TxAttempt, TxEnd, TxProvider, TxRequest};
use crate::{
    ExtractKey, LockMode, OnDisconnect, Rejection, RejectionKind, RequestView, ResponseFormat, ResponseView,
    SetupError, key::key_of, lock::DEFAULT_ANSWER_WITHIN, refusal::Refusal,
};

/// A transaction with a lock for each request: which key, how, which responses commit, and what becomes of those who do
/// not get it.
///
/// `V` is the request as the framework shows it, `P` what opens the transactions.
pub struct TxLockPolicy<V, P> {
    provider: P,
    key: Arc<dyn ExtractKey<V>>,
    namespace: Namespace,
    mode: LockMode,
    wait: Option<Duration>,
    answer_within: Duration,
    commit_when: CommitWhen,
    join: bool,
    on_disconnect: OnDisconnect,
    refusal: Refusal,
}

type CommitWhen = Arc<dyn Fn(&dyn ResponseView) -> bool + Send + Sync>;

impl<V: 'static, P: TxProvider> TxLockPolicy<V, P> {
    /// A transaction that has tried once for an exclusive lock on the key that is extracted from each request.
    ///
    /// # Errors
    ///
    /// [`SetupError`] if the extractor can never work.
    pub fn new(provider: impl Into<P>, key: impl ExtractKey<V>) -> Result<Self, SetupError> {
        key.validate()?;
        Ok(Self {
            provider: provider.into(),
            key: Arc::new(key),
            namespace: Namespace::unnamed(),
            mode: LockMode::Exclusive,
            wait: None,
            answer_within: DEFAULT_ANSWER_WITHIN,
            commit_when: Arc::new(ends_well),
            join: false,
            on_disconnect: OnDisconnect::Cancel,
            refusal: Refusal::default(),
        })
    }

    /// Takes names in this namespace. Default: the unnamed one. Locks of session scope in the same namespace and
    /// database exclude those of this policy, and the other way round.
    #[must_use]
    pub fn namespace(self, namespace: Namespace) -> Self {
        Self { namespace, ..self }
    }

    /// Sets how requests hold the key. Default: exclusive.
    #[must_use]
    pub fn mode(self, mode: LockMode) -> Self {
        Self { mode, ..self }
    }

    /// Waits for a key that others hold, for at most `limit`. Default: one try. Each request that waits has a
    /// connection of the pool meanwhile.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Sets how long the database may take over anything but that wait: a connection from the pool, BEGIN, COMMIT. A
    /// request whose transaction does not begin in time is answered with 503. Default: 5 s.
    #[must_use]
    pub fn answer_within(self, limit: Duration) -> Self {
        Self {
            answer_within: limit,
            ..self
        }
    }

    /// Sets which responses commit; the others roll back. Default: [`ends_well`].
    #[must_use]
    pub fn commit_when(mut self, commits: impl Fn(&dyn ResponseView) -> bool + Send + Sync + 'static) -> Self {
        self.commit_when = Arc::new(commits);
        self
    }

    /// Rolls back whatever the response says, as for a dry run.
    #[must_use]
    pub fn rollback_only(self) -> Self {
        self.commit_when(|_| false)
    }

    /// Takes the lock in the transaction that a policy outside has opened for the request, instead of opening another
    /// on a second connection. Its end is the outer policy's: a response that does not commit here has it rolled back.
    ///
    /// A request without such a transaction, of this provider's type, is answered with 500. Both policies have to be of
    /// one database. A wait tries again every 25 ms.
    #[must_use]
    pub fn join_open(self) -> Self {
        Self { join: true, ..self }
    }

    /// Sets what becomes of a handler whose client leaves. Default: it is cancelled, and its transaction rolled back.
    #[must_use]
    pub fn on_disconnect(self, on_disconnect: OnDisconnect) -> Self {
        Self { on_disconnect, ..self }
    }

    /// Sets after how long those who are refused may ask again. Default: 1 s. The header holds whole seconds.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.refusal.retry_after = after;
        self
    }

    /// Opens transactions for CORS preflights too. Default: they pass without one.
    #[must_use]
    pub fn include_preflights(mut self) -> Self {
        self.refusal.preflights = true;
        self
    }

    /// Replaces the answers to those who are refused, also when the transaction of a handler that has answered was not
    /// committed. The closure is given the usual answer, to keep or to change.
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

    /// Begins the transaction for a request; `None` if it needs none.
    ///
    /// # Errors
    ///
    /// A [`Rejection`] if the request has no usable key.
    pub fn attempt(&self, view: &V) -> Result<Option<TxAttempt<P>>, Rejection>
    where
        V: RequestView,
    {
        if self.refusal.leaves_alone(view) {
            return Ok(None);
        }
        let Some(key) = key_of(&*self.key, view, &self.namespace)? else {
            return Ok(None);
        };
        let mut request = TxRequest::new(key)
            .with_mode(self.mode.of_method(view.method()))
            .with_answer_within(self.answer_within);
        if let Some(limit) = self.wait {
            request = request.with_wait(limit);
        }
        let retry_after = self.refusal.retry_after;
        if self.join {
            let slot = view.extension().ok_or_else(|| {
                Rejection::new(RejectionKind::Setup).with_detail("no layer outside has opened a transaction to join")
            })?;
            return Ok(Some(TxAttempt::join(slot, request, retry_after)));
        }
        Ok(Some(TxAttempt::new(self.provider.clone(), request, retry_after)))
    }

    /// Ends the transaction of a request as its response says; `None` if the handler has none to give.
    pub fn end(&self, open: OpenTx<P>, response: Option<&dyn ResponseView>) -> TxEnd {
        let commit = response.is_some_and(|response| (self.commit_when)(response));
        open.end(commit, self.answer_within)
    }

    /// The answer to a request that is refused, or whose transaction did not end as it should.
    #[must_use]
    pub fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        self.refusal.respond(rejection, format)
    }
}

/// Whether a response tells of success: a status of 1xx, 2xx or 3xx, and no gRPC status but 0 in its headers.
///
/// A stream of gRPC messages says how it ended in its trailers, long after its headers.
#[must_use]
pub fn ends_well(response: &dyn ResponseView) -> bool {
    let mut well = response.status().as_u16() < 400;
    response.headers("grpc-status", &mut |status| well &= status == b"0");
    well
}

/// By hand, since the request itself need not be `Clone`.
impl<V, P: Clone> Clone for TxLockPolicy<V, P> {
    fn clone(&self) -> Self {
        Self {
            provider: self.provider.clone(),
            key: Arc::clone(&self.key),
            namespace: self.namespace.clone(),
            mode: self.mode,
            wait: self.wait,
            answer_within: self.answer_within,
            commit_when: Arc::clone(&self.commit_when),
            join: self.join,
            on_disconnect: self.on_disconnect,
            refusal: self.refusal.clone(),
        }
    }
}

impl<V, P> fmt::Debug for TxLockPolicy<V, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TxLockPolicy")
            .field("key", &self.key)
            .field("namespace", &self.namespace)
            .field("mode", &self.mode)
            .field("wait", &self.wait)
            .field("answer_within", &self.answer_within)
            .field("join", &self.join)
            .field("on_disconnect", &self.on_disconnect)
            .field("refusal", &self.refusal)
            .finish_non_exhaustive()
    }
}
