//! What a policy sees of a request.

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use http::{Extensions, HeaderMap, Method, Request, Response, StatusCode, Uri, request::Parts};

/// What the policies see of a request, whichever framework it came in by.
///
/// Implemented for requests of the `http` crate, and by the adapters for what their frameworks have instead.
pub trait RequestView {
    /// The method, such as `GET`.
    fn method(&self) -> &str;

    /// The path as it was sent: percent-encoded, without the query, and whole, also where routers are nested.
    fn path(&self) -> &str;

    /// The address at the other end of the connection, if the server passed it on.
    fn peer(&self) -> Option<IpAddr>;

    /// The template of the route that was matched, such as `/orders/{id}`.
    fn matched_route(&self) -> Option<Cow<'_, str>>;

    /// A parameter of the matched route, still percent-encoded, from routers that tell. Others are asked for the template
    /// by [`matched_route`](Self::matched_route), which is laid beside the path.
    fn route_param(&self, name: &str) -> Option<Cow<'_, str>> {
        let _ = name;
        None
    }

    /// Calls `visit` with each value of a header, in the order in which they were sent.
    fn headers(&self, name: &str, visit: &mut dyn FnMut(&[u8]));

    /// Copies a value out of the request's extensions.
    fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T>;
}

/// What the policies see of a handler's response, whichever framework it goes out by: its status and headers.
///
/// Implemented for responses of the `http` crate, and by the adapters for what their frameworks have instead.
pub trait ResponseView {
    /// The status.
    fn status(&self) -> StatusCode;

    /// Calls `visit` with each value of a header, in the order in which they will be sent.
    fn headers(&self, name: &str, visit: &mut dyn FnMut(&[u8]));
}

impl<B> ResponseView for Response<B> {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self, name: &str, visit: &mut dyn FnMut(&[u8])) {
        let values = self.headers().get_all(name);
        values.iter().for_each(|value| visit(value.as_bytes()));
    }
}

/// The peer's address, as an extension of an `http` request.
///
/// For servers whose own extension the adapter does not know: insert it where the connection is accepted. Never make
/// it from a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a newtype that users make")]
pub struct Peer(pub IpAddr);

/// The template of the matched route, as an extension of an `http` request, for routers that the adapter does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a newtype that users make")]
pub struct MatchedRoute(pub Arc<str>);

struct Whole<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

macro_rules! view_of {
    ($([$($generics:tt)*] $request:ty: |$this:ident| $whole:expr;)+) => {$(
        impl<$($generics)*> RequestView for $request {
            fn method(&self) -> &str {
                let $this = self;
                $whole.method.as_str()
            }

            fn path(&self) -> &str {
                let $this = self;
                $whole.uri.path()
            }

            fn peer(&self) -> Option<IpAddr> {
                let $this = self;
                $whole.extensions.get().map(|Peer(peer)| *peer)
            }

            fn matched_route(&self) -> Option<Cow<'_, str>> {
                let $this = self;
                $whole.extensions.get().map(|MatchedRoute(route)| Cow::Borrowed(&**route))
            }

            fn headers(&self, name: &str, visit: &mut dyn FnMut(&[u8])) {
                let $this = self;
                $whole.headers.get_all(name).iter().for_each(|value| visit(value.as_bytes()));
            }

            fn extension<T: Clone + Send + Sync + 'static>(&self) -> Option<T> {
                let $this = self;
                $whole.extensions.get().cloned()
            }
        }
    )+};
}

view_of! {
    [] Parts: |parts| Whole {
        method: &parts.method,
        uri: &parts.uri,
        headers: &parts.headers,
        extensions: &parts.extensions,
    };
    [B] Request<B>: |request| Whole {
        method: request.method(),
        uri: request.uri(),
        headers: request.headers(),
        extensions: request.extensions(),
    };
}

/// The only value of a header; `Err` if it came more than once.
pub(crate) fn single_header<V: RequestView>(view: &V, name: &str) -> Result<Option<Vec<u8>>, ()> {
    let mut found = None;
    let mut twice = false;
    view.headers(name, &mut |value| {
        twice |= found.is_some();
        found = Some(value.to_vec());
    });
    if twice { Err(()) } else { Ok(found) }
}

fn has_header<V: RequestView>(view: &V, name: &str) -> bool {
    let mut found = false;
    view.headers(name, &mut |_| found = true);
    found
}

/// Whether a browser asks here if it may send another request. It carries nothing to protect, and none of what the
/// other request would carry.
pub(crate) fn is_preflight<V: RequestView>(view: &V) -> bool {
    view.method() == "OPTIONS" && has_header(view, "origin") && has_header(view, "access-control-request-method")
}

/// Whether the request is a gRPC call. gRPC-Web is not: its clients read the HTTP status.
pub(crate) fn is_grpc<V: RequestView>(view: &V) -> bool {
    const TYPE: &[u8] = b"application/grpc";
    let mut grpc = false;
    view.headers("content-type", &mut |value| {
        grpc |= value.split_at_checked(TYPE.len()).is_some_and(|(kind, rest)| {
            kind.eq_ignore_ascii_case(TYPE) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
        });
    });
    grpc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn a_preflight_needs_its_method_and_both_headers() {
        let both = [
            ("Origin", "https://a.example"),
            ("Access-Control-Request-Method", "POST"),
        ];
        assert!(is_preflight(&request("OPTIONS", &both)));
        assert!(!is_preflight(&request("POST", &both)));
        assert!(!is_preflight(&request("OPTIONS", &both[..1])));
        assert!(!is_preflight(&request("OPTIONS", &both[1..])));
    }

    #[test]
    fn grpc_is_told_by_its_content_type() {
        for (kind, grpc) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("Application/gRPC; charset=utf-8", true),
            ("application/grpc-web+proto", false),
            ("application/grpcish", false),
            ("application/json", false),
        ] {
            assert_eq!(is_grpc(&request("POST", &[("Content-Type", kind)])), grpc, "{kind}");
        }
        assert!(!is_grpc(&request("POST", &[])));
    }

    #[test]
    fn parts_and_requests_show_the_same() {
        let mut request = request("GET", &[("x-a", "1"), ("x-a", "2")]);
        *request.uri_mut() = "/a%20b?q".parse().unwrap();
        request.extensions_mut().insert(Peer([127, 0, 0, 1].into()));
        request.extensions_mut().insert(MatchedRoute("/{x}".into()));
        request.extensions_mut().insert(7_u8);

        fn seen<V: RequestView>(view: &V) -> (String, Option<IpAddr>, Option<String>, Vec<u8>, Option<u8>) {
            let mut values = Vec::new();
            view.headers("X-A", &mut |value| values.extend_from_slice(value));
            (
                format!("{} {}", view.method(), view.path()),
                view.peer(),
                view.matched_route().map(Cow::into_owned),
                values,
                view.extension(),
            )
        }
        let whole = seen(&request);
        assert_eq!(whole, seen(&request.into_parts().0));
        let route = Some("/{x}".to_owned());
        assert_eq!(
            whole,
            (
                "GET /a%20b".to_owned(),
                Some([127, 0, 0, 1].into()),
                route,
                b"12".to_vec(),
                Some(7)
            )
        );
    }
}
