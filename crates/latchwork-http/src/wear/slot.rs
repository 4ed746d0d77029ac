//! The builder of at most so many requests at once.

/// Gives a type the builder of [`SlotPolicy`](crate::SlotPolicy).
#[doc(hidden)]
#[macro_export]
macro_rules! __wear_slot {
    ($wearer:ident, $head:ty) => {
        impl $wearer {
            /// One pool for all requests. Full is 503: the service is at its capacity.
            #[must_use]
            pub fn global(slots: $crate::__private::Slots) -> Self {
                $crate::SlotPolicy::global(slots).into()
            }

            /// A pool of `limit` slots for each key that is extracted from requests, such as one for each client. Full is 429.
            ///
            /// Put a text first in the key: pools of one key are one pool, and two policies that give it different limits get in
            /// each other's way.
            ///
            /// # Errors
            ///
            /// [`SetupError`](latchwork_http::SetupError) if the extractor can never work, or for a limit of zero or above
            /// [`MAX_SLOTS`](latchwork_core::slots::MAX_SLOTS).
            pub fn per(
                locks: $crate::__private::Locks,
                key: impl $crate::ExtractKey<$head>,
                limit: u32,
            ) -> Result<Self, $crate::SetupError> {
                $crate::SlotPolicy::per(locks, key, limit).map(Self::from)
            }

            /// Sets whose limit it is, and so the status of those who are refused. Default: that of the constructor.
            #[must_use]
            pub fn capacity(self, capacity: $crate::Capacity) -> Self {
                self.map(|policy| policy.capacity(capacity))
            }

            /// Waits for a free slot, for at most `limit`. Default: one try.
            #[must_use]
            pub fn wait(self, limit: ::std::time::Duration) -> Self {
                self.map(|policy| policy.wait(limit))
            }

            /// Sets how long the lock server may take over the answer to a try, before the request is answered with 503.
            /// Default: 5 s. A policy that waits has its own limit instead.
            #[must_use]
            pub fn answer_within(self, limit: ::std::time::Duration) -> Self {
                self.map(|policy| policy.answer_within(limit))
            }

            /// Gives the slot up when the handler has returned its response. Default: when the body was sent, has failed, or
            /// was dropped. So slow readers do not fill the slots, but streamed work runs on without one.
            #[must_use]
            pub fn until_response(self) -> Self {
                self.map($crate::SlotPolicy::until_response)
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

            /// Counts CORS preflights too. Default: they pass without a slot.
            #[must_use]
            pub fn include_preflights(self) -> Self {
                self.map($crate::SlotPolicy::include_preflights)
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

            fn map(self, change: impl FnOnce($crate::SlotPolicy<$head>) -> $crate::SlotPolicy<$head>) -> Self {
                let policy = ::std::sync::Arc::try_unwrap(self.policy).unwrap_or_else(|shared| (*shared).clone());
                Self::from(change(policy))
            }
        }

        impl From<$crate::SlotPolicy<$head>> for $wearer {
            fn from(policy: $crate::SlotPolicy<$head>) -> Self {
                Self {
                    policy: ::std::sync::Arc::new(policy),
                }
            }
        }
    };
}
