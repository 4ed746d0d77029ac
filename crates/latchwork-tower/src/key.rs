//! From a request to a key: the extractors of [`latchwork_http::key`], for requests of the `http` crate.

use http::request::Parts;
pub use latchwork_http::key::{
    By, ClientAddress, ExtractError, ExtractKey, ForwardedHeader, Header, IntoParts, KeyParts, Param, Route, Segment,
    client, header, param, route, segment,
};

use crate::RequestHead;

/// Makes the key by a closure that looks at the request's head.
///
/// It returns a text, a [`Key`](latchwork_core::Key), a pair, array or `Vec` of texts, or an `Option` or `Result` of
/// these: `None` lets the request pass without a key, an [`ExtractError`] rejects it.
///
/// # Examples
///
/// ```
/// use latchwork_core::Locks;
/// use latchwork_tower::{LockLayer, key::by};
///
/// #[derive(Clone)]
/// struct Tenant(u32);
///
/// let tenant = by(|parts| parts.extensions.get().map(|Tenant(id)| id.to_string()));
/// let layer = LockLayer::new(Locks::in_memory(), ("tenant", tenant))?;
/// # Ok::<(), latchwork_tower::SetupError>(())
/// ```
pub fn by<R, F>(make: F) -> impl ExtractKey<RequestHead>
where
    F: Fn(&Parts) -> R + Send + Sync + 'static,
    R: IntoParts + 'static,
{
    latchwork_http::key::by(move |head: &RequestHead| make(head))
}
