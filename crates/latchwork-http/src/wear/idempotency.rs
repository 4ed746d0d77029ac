//! The builder of requests that may be sent again.

/// Gives a type the builder of [`IdempotencyPolicy`](crate::IdempotencyPolicy).
#[doc(hidden)]
#[macro_export]
macro_rules! __wear_idempotency {
    ($wearer:ident, $head:ty) => {
        impl<P: $crate::TxProvider> $wearer<P> {
            /// As [`IdempotencyPolicy::new`](latchwork_http::IdempotencyPolicy::new).
            ///
            /// # Errors
            ///
            /// [`SetupError`](latchwork_http::SetupError) if the extractor can never work.
            pub fn new(
                provider: impl Into<P>,
                principal: impl $crate::ExtractKey<$head>,
            ) -> Result<Self, $crate::SetupError> {
                $crate::IdempotencyPolicy::new(provider, principal).map(Self::from)
            }

            /// As [`IdempotencyPolicy::namespace`](latchwork_http::IdempotencyPolicy::namespace).
            #[must_use]
            pub fn namespace(self, namespace: $crate::__private::Namespace) -> Self {
                self.map(|policy| policy.namespace(namespace))
            }

            /// As [`IdempotencyPolicy::optional`](latchwork_http::IdempotencyPolicy::optional).
            #[must_use]
            pub fn optional(self) -> Self {
                self.map($crate::IdempotencyPolicy::optional)
            }

            /// As [`IdempotencyPolicy::methods`](latchwork_http::IdempotencyPolicy::methods).
            #[must_use]
            pub fn methods<'a>(self, methods: impl IntoIterator<Item = &'a str>) -> Self {
                self.map(|policy| policy.methods(methods))
            }

            /// As [`IdempotencyPolicy::external`](latchwork_http::IdempotencyPolicy::external).
            #[must_use]
            pub fn external(self, locks: $crate::__private::Locks) -> Self {
                self.map(|policy| policy.external(locks))
            }

            /// As [`IdempotencyPolicy::wait`](latchwork_http::IdempotencyPolicy::wait).
            #[must_use]
            pub fn wait(self, limit: ::std::time::Duration) -> Self {
                self.map(|policy| policy.wait(limit))
            }

            /// As [`IdempotencyPolicy::answer_within`](latchwork_http::IdempotencyPolicy::answer_within).
            #[must_use]
            pub fn answer_within(self, limit: ::std::time::Duration) -> Self {
                self.map(|policy| policy.answer_within(limit))
            }

            /// As [`IdempotencyPolicy::commit_when`](latchwork_http::IdempotencyPolicy::commit_when).
            #[must_use]
            pub fn commit_when(
                self,
                commits: impl Fn(&dyn $crate::ResponseView) -> bool + Send + Sync + 'static,
            ) -> Self {
                self.map(|policy| policy.commit_when(commits))
            }

            /// As [`IdempotencyPolicy::keep_header`](latchwork_http::IdempotencyPolicy::keep_header).
            ///
            /// # Errors
            ///
            /// [`SetupError::KeptHeader`](latchwork_http::SetupError::KeptHeader) for `Set-Cookie` and for what is no name of a header.
            pub fn keep_header(self, name: &str) -> Result<Self, $crate::SetupError> {
                let policy = ::std::sync::Arc::unwrap_or_clone(self.policy);
                policy.keep_header(name).map(Self::from)
            }

            /// As [`IdempotencyPolicy::max_request_body`](latchwork_http::IdempotencyPolicy::max_request_body).
            #[must_use]
            pub fn max_request_body(self, bytes: usize) -> Self {
                self.map(|policy| policy.max_request_body(bytes))
            }

            /// As [`IdempotencyPolicy::max_response_body`](latchwork_http::IdempotencyPolicy::max_response_body).
            #[must_use]
            pub fn max_response_body(self, bytes: usize) -> Self {
                self.map(|policy| policy.max_response_body(bytes))
            }

            /// As [`IdempotencyPolicy::retention`](latchwork_http::IdempotencyPolicy::retention).
            #[must_use]
            pub fn retention(self, retention: ::std::time::Duration) -> Self {
                self.map(|policy| policy.retention(retention))
            }

            /// As [`IdempotencyPolicy::on_disconnect`](latchwork_http::IdempotencyPolicy::on_disconnect).
            #[must_use]
            pub fn on_disconnect(self, on_disconnect: $crate::OnDisconnect) -> Self {
                self.map(|policy| policy.on_disconnect(on_disconnect))
            }

            /// As [`IdempotencyPolicy::retry_after`](latchwork_http::IdempotencyPolicy::retry_after).
            #[must_use]
            pub fn retry_after(self, after: ::std::time::Duration) -> Self {
                self.map(|policy| policy.retry_after(after))
            }

            /// As [`IdempotencyPolicy::on_reject`](latchwork_http::IdempotencyPolicy::on_reject).
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
                change: impl FnOnce($crate::IdempotencyPolicy<$head, P>) -> $crate::IdempotencyPolicy<$head, P>,
            ) -> Self {
                change(::std::sync::Arc::unwrap_or_clone(self.policy)).into()
            }
        }

        impl<P> From<$crate::IdempotencyPolicy<$head, P>> for $wearer<P> {
            fn from(policy: $crate::IdempotencyPolicy<$head, P>) -> Self {
                Self {
                    policy: ::std::sync::Arc::new(policy),
                }
            }
        }

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
