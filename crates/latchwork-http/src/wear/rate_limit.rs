//! The builder of so many requests in so much time.

/// Gives a type the builder of [`RateLimitPolicy`](crate::RateLimitPolicy).
#[doc(hidden)]
#[macro_export]
macro_rules! __wear_rate_limit {
    ($wearer:ident, $head:ty, $request:ty) => {
        impl $wearer {
            /// As [`RateLimitPolicy::new`](latchwork_http::RateLimitPolicy::new).
            ///
            /// # Errors
            ///
            /// [`SetupError`](latchwork_http::SetupError) if the extractor can never work.
            pub fn new(
                rates: $crate::__private::RateLimits,
                key: impl $crate::ExtractKey<$head>,
                quotas: impl Into<$crate::__private::Quotas>,
            ) -> Result<Self, $crate::SetupError> {
                $crate::RateLimitPolicy::new(rates, key, quotas).map(Self::from)
            }

            /// As [`RateLimitPolicy::name`](latchwork_http::RateLimitPolicy::name).
            ///
            /// # Errors
            ///
            /// [`SetupError::LimitName`](latchwork_http::SetupError::LimitName) for a name that no header can hold.
            pub fn name(self, name: &str) -> Result<Self, $crate::SetupError> {
                ::std::sync::Arc::unwrap_or_clone(self.policy)
                    .name(name)
                    .map(Self::from)
            }

            /// As [`RateLimitPolicy::cost_by`](latchwork_http::RateLimitPolicy::cost_by).
            #[must_use]
            pub fn cost_by(self, cost: impl Fn(&$request) -> u32 + Send + Sync + 'static) -> Self {
                self.map(|policy| policy.cost_by(move |head| cost(head)))
            }

            /// As [`RateLimitPolicy::quotas_by`](latchwork_http::RateLimitPolicy::quotas_by).
            #[must_use]
            pub fn quotas_by(
                self,
                quotas: impl Fn(&$request) -> Option<$crate::__private::Quotas> + Send + Sync + 'static,
            ) -> Self {
                self.map(|policy| policy.quotas_by(move |head| quotas(head)))
            }

            /// As [`RateLimitPolicy::shadow`](latchwork_http::RateLimitPolicy::shadow).
            #[must_use]
            pub fn shadow(self) -> Self {
                self.map($crate::RateLimitPolicy::shadow)
            }

            /// As [`RateLimitPolicy::headers`](latchwork_http::RateLimitPolicy::headers).
            #[must_use]
            pub fn headers(self, headers: $crate::rate::RateHeaders) -> Self {
                self.map(|policy| policy.headers(headers))
            }

            /// As [`RateLimitPolicy::include_preflights`](latchwork_http::RateLimitPolicy::include_preflights).
            #[must_use]
            pub fn include_preflights(self) -> Self {
                self.map($crate::RateLimitPolicy::include_preflights)
            }

            /// As [`RateLimitPolicy::on_reject`](latchwork_http::RateLimitPolicy::on_reject).
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
                change: impl FnOnce($crate::RateLimitPolicy<$head>) -> $crate::RateLimitPolicy<$head>,
            ) -> Self {
                change(::std::sync::Arc::unwrap_or_clone(self.policy)).into()
            }
        }

        impl From<$crate::RateLimitPolicy<$head>> for $wearer {
            fn from(policy: $crate::RateLimitPolicy<$head>) -> Self {
                Self {
                    policy: ::std::sync::Arc::new(policy),
                }
            }
        }
    };
}
