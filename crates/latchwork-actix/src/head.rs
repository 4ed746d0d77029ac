//! A request without its payload, as the policies see it.

use std::{borrow::Cow, net::IpAddr, ops::Deref};

use actix_web::{HttpMessage, HttpRequest, dev::ServiceRequest};
use latchwork_http::{MatchedRoute, Peer, RequestView};

/// A request without its payload, as the policies see it: actix-web's [`HttpRequest`].
///
/// It must be gone when the request goes on, since actix-web's router wants the request for itself.
#[derive(Debug)]
pub struct RequestHead(HttpRequest);

impl RequestHead {
    pub(crate) fn of(request: &ServiceRequest) -> Self {
        Self::from(request.request())
    }
}

impl From<&HttpRequest> for RequestHead {
    fn from(request: &HttpRequest) -> Self {
        Self(request.clone())
    }
}

impl Deref for RequestHead {
    type Target = HttpRequest;

    fn deref(&self) -> &HttpRequest {
        &self.0
    }
}

impl RequestView for RequestHead {
    fn method(&self) -> &str {
        self.0.method().as_str()
    }

    fn path(&self) -> &str {
        self.0.path()
    }

    fn peer(&self) -> Option<IpAddr> {
        let given = self.extension().map(|Peer(peer)| peer);
        given.or_else(|| self.0.peer_addr().map(|peer| peer.ip()))
    }

    fn matched_route(&self) -> Option<Cow<'_, str>> {
        let given = self.extension().map(|MatchedRoute(route)| route.to_string());
        given.or_else(|| self.0.match_pattern()).map(Cow::Owned)
    }

    fn route_param(&self, name: &str) -> Option<Cow<'_, str>> {
        // actix-web puts a replacement character for what is not UTF-8; the path itself is then to be looked at.
        let value = self.0.match_info().get(name);
        value
            .filter(|value| !value.contains(char::REPLACEMENT_CHARACTER))
            .map(Cow::Borrowed)
    }

    fn headers(&self, name: &str, visit: &mut dyn FnMut(&[u8])) {
        self.0.headers().get_all(name).for_each(|value| visit(value.as_bytes()));
    }

    fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.0.extensions().get().cloned()
    }
}
