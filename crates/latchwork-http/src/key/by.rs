//! Keys made by closures.

use std::{fmt, marker::PhantomData};

use latchwork_core::key::Key;

use super::{ExtractError, ExtractKey, KeyParts};

/// Makes the key by a closure that looks at the request.
///
/// It returns a text, a [`Key`], a tuple, array or `Vec` of texts, or an `Option` or `Result` of these: `None` lets
/// the request pass without a key, an [`ExtractError`] rejects it.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use latchwork_http::key::by;
///
/// #[derive(Clone)]
/// struct Tenant(u32);
///
/// let key = ("tenant", by(|parts: &Parts| parts.extensions.get().map(|Tenant(id)| id.to_string())));
/// # fn check(_: impl latchwork_http::ExtractKey<Parts>) {}
/// # check(key);
/// ```
pub fn by<V, R, F>(make: F) -> By<V, F>
where
    F: Fn(&V) -> R + Send + Sync + 'static,
    R: IntoParts,
{
    By {
        make,
        view: PhantomData,
    }
}

/// An extractor made by [`by`].
pub struct By<V, F> {
    make: F,
    view: PhantomData<fn(&V)>,
}

impl<V, R, F> ExtractKey<V> for By<V, F>
where
    V: 'static,
    F: Fn(&V) -> R + Send + Sync + 'static,
    R: IntoParts,
{
    fn extract(&self, view: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        (self.make)(view).add_to(parts)
    }
}

impl<V, F> fmt::Debug for By<V, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("By").finish_non_exhaustive()
    }
}

/// What a closure may return as a key.
pub trait IntoParts {
    /// Adds the parts; `Ok(None)` lets the request pass without a key.
    ///
    /// # Errors
    ///
    /// [`ExtractError`] if the closure returned one.
    fn add_to(self, parts: &mut KeyParts) -> Result<Option<()>, ExtractError>;
}

impl IntoParts for &'static str {
    fn add_to(self, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        parts.push(self);
        Ok(Some(()))
    }
}

impl IntoParts for String {
    fn add_to(self, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        parts.push(&self);
        Ok(Some(()))
    }
}

impl IntoParts for Key {
    fn add_to(self, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        parts.push_key(self);
        Ok(Some(()))
    }
}

impl<T: IntoParts> IntoParts for Vec<T> {
    fn add_to(self, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        add_all(self, parts)
    }
}

impl<T: IntoParts, const N: usize> IntoParts for [T; N] {
    fn add_to(self, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        add_all(self, parts)
    }
}

impl<A: IntoParts, B: IntoParts> IntoParts for (A, B) {
    fn add_to(self, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        if self.0.add_to(parts)?.is_none() {
            return Ok(None);
        }
        self.1.add_to(parts)
    }
}

impl<T: IntoParts> IntoParts for Option<T> {
    fn add_to(self, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        self.map_or(Ok(None), |part| part.add_to(parts))
    }
}

impl<T: IntoParts> IntoParts for Result<T, ExtractError> {
    fn add_to(self, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        self?.add_to(parts)
    }
}

fn add_all<T: IntoParts>(all: impl IntoIterator<Item = T>, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
    for part in all {
        if part.add_to(parts)?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(()))
}
