//! The builder of a transaction with a lock for each request.

/// Gives a type the builder of [`TxLockPolicy`](crate::TxLockPolicy).
#[doc(hidden)]
#[macro_export]
macro_rules! __wear_tx_lock {
    ($wearer:ident, $head:ty) => {
        impl<P: $crate::TxProvider> $wearer<P> {
            /// A transaction that has tried once for an exclusive lock on the key that is extracted from each request: see
            /// [`key`](crate::key).
            ///
            /// # Errors
            ///
            /// [`SetupError`](latchwork_http::SetupError) if the extractor can never work.
            pub fn new(
                provider: impl Into<P>,
                key: impl $crate::ExtractKey<$head>,
            ) -> Result<Self, $crate::SetupError> {
                $crate::TxLockPolicy::new(provider, key).map(Self::from)
            }

            /// Takes names in this namespace. Default: the unnamed one. Locks of session scope in the same namespace and
            /// database, such as those of a lock for each request, exclude these, and the other way round.
            #[must_use]
            pub fn namespace(self, namespace: $crate::__private::Namespace) -> Self {
                self.map(|policy| policy.namespace(namespace))
            }

            /// Sets how requests hold the key. Default: exclusive.
            #[must_use]
            pub fn mode(self, mode: $crate::LockMode) -> Self {
                self.map(|policy| policy.mode(mode))
            }

            /// Waits for a key that others hold, for at most `limit`. Default: one try. Each request that waits has a
            /// connection of the pool meanwhile.
            #[must_use]
            pub fn wait(self, limit: ::std::time::Duration) -> Self {
                self.map(|policy| policy.wait(limit))
            }

            /// Sets how long the database may take over anything but that wait: a connection from the pool, BEGIN, COMMIT. A
            /// request whose transaction does not begin in time is answered with 503. Default: 5 s.
            #[must_use]
            pub fn answer_within(self, limit: ::std::time::Duration) -> Self {
                self.map(|policy| policy.answer_within(limit))
            }

            /// Sets which responses commit; the others roll back. Default: [`ends_well`](super::ends_well).
            #[must_use]
            pub fn commit_when(
                self,
                commits: impl Fn(&dyn $crate::ResponseView) -> bool + Send + Sync + 'static,
            ) -> Self {
                self.map(|policy| policy.commit_when(commits))
            }

            /// Rolls back whatever the response says, as for a dry run.
            #[must_use]
            pub fn rollback_only(self) -> Self {
                self.map($crate::TxLockPolicy::rollback_only)
            }

            /// Takes the lock in the transaction that a layer or middleware outside has opened for the request, instead of opening another on
            /// a second connection. Its end is the outer one's: a response that does not commit here has it rolled back.
            ///
            /// A request without such a transaction, of this provider's type, is answered with 500. Both have to be of
            /// one database. A wait tries again every 25 ms.
            #[must_use]
            pub fn join_open(self) -> Self {
                self.map($crate::TxLockPolicy::join_open)
            }

            /// Sets what becomes of a handler whose client leaves. Default: it is cancelled, and its transaction rolled back.
            #[must_use]
            pub fn on_disconnect(self, on_disconnect: $crate::OnDisconnect) -> Self {
                self.map(|policy| policy.on_disconnect(on_disconnect))
            }

            /// Sets after how long those who are refused may ask again. Default: 1 s. The header holds whole seconds.
            #[must_use]
            pub fn retry_after(self, after: ::std::time::Duration) -> Self {
                self.map(|policy| policy.retry_after(after))
            }

            /// Opens transactions for CORS preflights too. Default: they pass without one.
            #[must_use]
            pub fn include_preflights(self) -> Self {
                self.map($crate::TxLockPolicy::include_preflights)
            }

            /// Replaces the answers to those who are refused, also when the transaction of a handler that has answered was not
            /// committed. The closure is given the usual answer, to keep or to change.
            #[must_use]
            pub fn on_reject(
                self,
                replace: impl Fn(
                    &$crate::Rejection,
                    $crate::http::Response<$crate::bytes::Bytes>,
                ) -> $crate::http::Response<$crate::bytes::Bytes>
                + Send
                + Sync
                + 'static,
            ) -> Self {
                self.map(|policy| policy.on_reject(replace))
            }

            fn map(
                self,
                change: impl FnOnce($crate::TxLockPolicy<$head, P>) -> $crate::TxLockPolicy<$head, P>,
            ) -> Self {
                let policy = ::std::sync::Arc::try_unwrap(self.policy).unwrap_or_else(|shared| (*shared).clone());
                Self::from(change(policy))
            }
        }

        impl<P> From<$crate::TxLockPolicy<$head, P>> for $wearer<P> {
            fn from(policy: $crate::TxLockPolicy<$head, P>) -> Self {
                Self {
                    policy: ::std::sync::Arc::new(policy),
                }
            }
        }

        /// By hand, since the provider need not be `Clone` for it.
        impl<P> Clone for $wearer<P> {
            fn clone(&self) -> Self {
                Self {
                    policy: ::std::sync::Arc::clone(&self.policy),
                }
            }
        }

        impl<P> ::std::fmt::Debug for $wearer<P> {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($wearer))
                    .field("policy", &self.policy)
                    .finish()
            }
        }
    };
}
