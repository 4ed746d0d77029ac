//! The builder of a lock for each request.

/// Gives a type the builder of [`LockPolicy`](crate::LockPolicy).
#[doc(hidden)]
#[macro_export]
macro_rules! __wear_lock {
    ($wearer:ident, $head:ty) => {
        impl $wearer {
            /// One exclusive try for the key that is extracted from each request: see [`key`](crate::key).
            ///
            /// # Errors
            ///
            /// [`SetupError`](latchwork_http::SetupError) if the extractor can never work.
            pub fn new(
                locks: $crate::__private::Locks,
                key: impl $crate::ExtractKey<$head>,
            ) -> Result<Self, $crate::SetupError> {
                $crate::LockPolicy::new(locks, key).map(Self::from)
            }

            /// Sets how requests hold the key. Default: exclusive.
            #[must_use]
            pub fn mode(self, mode: $crate::LockMode) -> Self {
                self.map(|policy| policy.mode(mode))
            }

            /// Waits for a key that others hold, for at most `limit`. Default: one try.
            #[must_use]
            pub fn wait(self, limit: ::std::time::Duration) -> Self {
                self.map(|policy| policy.wait(limit))
            }

            /// As [`wait`](Self::wait), and says how to wait.
            #[must_use]
            pub fn wait_by(self, limit: ::std::time::Duration, method: $crate::__private::WaitMethod) -> Self {
                self.map(|policy| policy.wait_by(limit, method))
            }

            /// Sets how long the lock server may take over the answer to a try, before the request is answered with 503.
            /// Default: 5 s. A policy that waits has its own limit instead.
            #[must_use]
            pub fn answer_within(self, limit: ::std::time::Duration) -> Self {
                self.map(|policy| policy.answer_within(limit))
            }

            /// Sets whether a handler is cancelled, and its request answered with 503, when its lock is lost while it runs:
            /// others may hold it from then on. Default: yes. Otherwise the handler has [`HeldLock::lost`](latchwork_http::HeldLock::lost).
            #[must_use]
            pub fn cancel_on_loss(self, cancel: bool) -> Self {
                self.map(|policy| policy.cancel_on_loss(cancel))
            }

            /// Sets what becomes of a handler whose client leaves. Default: it is cancelled.
            #[must_use]
            pub fn on_disconnect(self, on_disconnect: $crate::OnDisconnect) -> Self {
                self.map(|policy| policy.on_disconnect(on_disconnect))
            }

            /// Sets after how long those who are refused may ask again. Default: 1 s. The header holds whole seconds.
            #[must_use]
            pub fn retry_after(self, after: ::std::time::Duration) -> Self {
                self.map(|policy| policy.retry_after(after))
            }

            /// Locks CORS preflights too. Default: they pass without a lock.
            #[must_use]
            pub fn include_preflights(self) -> Self {
                self.map($crate::LockPolicy::include_preflights)
            }

            /// Replaces the answers to those who are refused. The closure is given the usual answer, to keep or to change.
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

            fn map(self, change: impl FnOnce($crate::LockPolicy<$head>) -> $crate::LockPolicy<$head>) -> Self {
                let policy = ::std::sync::Arc::try_unwrap(self.policy).unwrap_or_else(|shared| (*shared).clone());
                Self::from(change(policy))
            }
        }

        impl From<$crate::LockPolicy<$head>> for $wearer {
            fn from(policy: $crate::LockPolicy<$head>) -> Self {
                Self {
                    policy: ::std::sync::Arc::new(policy),
                }
            }
        }
    };
}
