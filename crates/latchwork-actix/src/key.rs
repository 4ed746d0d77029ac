//! From a request to a key: the extractors of [`latchwork_http::key`], for actix-web's requests.

use actix_web::HttpRequest;
pub use latchwork_http::key::{
    By, ClientAddress, ExtractError, ExtractKey, ForwardedHeader, Header, IntoParts, KeyParts, Param, Route, Segment,
    client, header, param, route, segment,
};

use crate::RequestHead;

/// Makes the key by a closure that looks at the request, which it must not keep a clone of.
///
/// It returns a text, a [`Key`](latchwork_core::Key), a pair, array or `Vec` of texts, or an `Option` or `Result` of
/// these: `None` lets the request pass without a key, an [`ExtractError`] rejects it.
///
/// # Examples
///
/// ```
/// use actix_web::HttpMessage;
/// use latchwork_actix::{LockMiddleware, key::by};
/// use latchwork_core::Locks;
///
/// #[derive(Clone)]
/// struct Tenant(u32);
///
/// let tenant = by(|request| request.extensions().get().map(|Tenant(id)| id.to_string()));
/// let middleware = LockMiddleware::new(Locks::in_memory(), ("tenant", tenant))?;
/// # Ok::<(), latchwork_actix::SetupError>(())
/// ```
pub fn by<R, F>(make: F) -> impl ExtractKey<RequestHead>
where
    F: Fn(&HttpRequest) -> R + Send + Sync + 'static,
    R: IntoParts + 'static,
{
    latchwork_http::key::by(move |head: &RequestHead| make(head))
}
