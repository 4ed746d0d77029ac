//! The service inside each of ours.

use std::mem::replace;

/// Takes the service that is ready. What is left is a clone, which is not.
pub(crate) fn take_ready<S: Clone>(inner: &mut S) -> S {
    let unready = inner.clone();
    replace(inner, unready)
}

/// The ways to the service inside, for a type with a field `inner: S`.
macro_rules! inner_accessors {
    () => {
        /// The inner service.
        #[must_use]
        pub const fn get_ref(&self) -> &S {
            &self.inner
        }

        /// The inner service, to be changed.
        pub const fn get_mut(&mut self) -> &mut S {
            &mut self.inner
        }

        /// Takes the inner service out.
        #[must_use]
        pub fn into_inner(self) -> S {
            self.inner
        }
    };
}

pub(crate) use inner_accessors;
