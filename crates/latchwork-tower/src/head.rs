//! A request without its body, as the policies see it.

use std::{borrow::Cow, net::IpAddr, ops::Deref};

use http::{Request, request::Parts};
use latchwork_http::RequestView;

/// A request without its body, as the policies see it: the parts of the `http` crate, and what axum has added to them.
#[derive(Debug)]
pub struct RequestHead(Parts);

impl RequestHead {
    /// Parts a request from its body.
    pub(crate) fn of<B>(request: Request<B>) -> (Self, B) {
        let (parts, body) = request.into_parts();
        (Self(parts), body)
    }

    pub(crate) fn with_body<B>(self, body: B) -> Request<B> {
        Request::from_parts(self.0, body)
    }

    pub(crate) fn insert<T: Clone + Send + Sync + 'static>(&mut self, value: T) -> Option<T> {
        self.0.extensions.insert(value)
    }
}

impl Deref for RequestHead {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl RequestView for RequestHead {
    fn method(&self) -> &str {
        self.0.method.as_str()
    }

    #[cfg(feature = "axum")]
    fn path(&self) -> &str {
        // Nested routers see what is left of the path only.
        self.0
            .extensions
            .get::<axum::extract::OriginalUri>()
            .map_or(&self.0.uri, |uri| uri)
            .path()
    }

    #[cfg(not(feature = "axum"))]
    fn path(&self) -> &str {
        self.0.uri.path()
    }

    fn peer(&self) -> Option<IpAddr> {
        let peer = self.0.peer();
        #[cfg(feature = "axum")]
        let peer = peer.or_else(|| self.axum_peer());
        peer
    }

    fn matched_route(&self) -> Option<Cow<'_, str>> {
        let route = self.0.matched_route();
        #[cfg(feature = "axum")]
        let route = route.or_else(|| self.axum_route());
        route
    }

    fn headers(&self, name: &str, visit: &mut dyn FnMut(&[u8])) {
        RequestView::headers(&self.0, name, visit);
    }

    fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
        self.0.extensions.get().cloned()
    }
}

#[cfg(feature = "axum")]
impl RequestHead {
    fn axum_peer(&self) -> Option<IpAddr> {
        use std::net::SocketAddr;

        use axum::extract::{ConnectInfo, connect_info::MockConnectInfo};

        let extensions = &self.0.extensions;
        let connected = extensions.get().map(|ConnectInfo::<SocketAddr>(peer)| *peer);
        connected
            .or_else(|| extensions.get().map(|MockConnectInfo::<SocketAddr>(peer)| *peer))
            .map(|peer| peer.ip())
    }

    fn axum_route(&self) -> Option<Cow<'_, str>> {
        let route = self.0.extensions.get::<axum::extract::MatchedPath>()?;
        Some(Cow::Borrowed(route.as_str()))
    }
}
