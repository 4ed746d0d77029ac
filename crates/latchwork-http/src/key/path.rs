//! Keys from the path and its route.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::{
    ExtractError, ExtractKey, KeyParts, SetupError,
    template::{self, Captured},
};
use crate::view::RequestView;

/// Takes the template of the matched route, such as `/orders/{id}`: one key for all requests of a route.
///
/// It needs a router that says which route it matched. A request without one is rejected with 400, which in axum is
/// the answer to an unknown path too, unless the layer was added by `route_layer`.
#[must_use]
pub const fn route() -> Route {
    Route { optional: false }
}

/// An extractor made by [`route`].
#[derive(Clone, Copy, Debug)]
pub struct Route {
    optional: bool,
}

impl Route {
    /// Lets a request without a matched route pass without a key. Default: it is rejected with 400.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self { optional: true }
    }
}

impl<V: RequestView> ExtractKey<V> for Route {
    fn extract(&self, view: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        match view.matched_route() {
            Some(route) => {
                parts.push(&route);
                Ok(Some(()))
            }
            None => nothing(self.optional, NO_ROUTE),
        }
    }
}

/// Takes one segment of the path, counted from 0: in `/orders/42/charge` the segment 1 is `42`.
///
/// It is percent-decoded, so that `/orders/%34%32` is the same order. A request with fewer segments, or an empty one
/// there, is rejected with 400.
#[must_use]
pub const fn segment(index: usize) -> Segment {
    Segment { index, optional: false }
}

/// An extractor made by [`segment`].
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    index: usize,
    optional: bool,
}

impl Segment {
    /// Lets a request without the segment pass without a key. Default: it is rejected with 400.
    #[must_use]
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

impl<V: RequestView> ExtractKey<V> for Segment {
    fn extract(&self, view: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        let path = view.path();
        let mut segments = path.strip_prefix('/').unwrap_or(path).split('/');
        match segments.nth(self.index) {
            Some(segment) if !segment.is_empty() => push_decoded(segment, parts),
            _ => nothing(self.optional, "the path is too short to say what is asked for"),
        }
    }
}

/// Takes one parameter of the matched route by its name: of `/orders/{id}` the parameter `id`.
///
/// It is percent-decoded. It needs a router that says which route it matched; without one the request is rejected with
/// 400. A route without that parameter is a mistake in the service, answered with 500.
pub fn param(name: impl Into<String>) -> Param {
    Param {
        name: name.into(),
        optional: false,
    }
}

/// An extractor made by [`param`].
#[derive(Clone, Debug)]
pub struct Param {
    name: String,
    optional: bool,
}

impl Param {
    /// Lets a request whose route has no such parameter, or that has no route, pass without a key.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    fn push(&self, value: &str, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        if value.is_empty() {
            return nothing(self.optional, "a parameter in the path is empty");
        }
        push_decoded(value, parts)
    }
}

impl<V: RequestView> ExtractKey<V> for Param {
    fn extract(&self, view: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        if let Some(value) = view.route_param(&self.name) {
            return self.push(&value, parts);
        }
        let Some(route) = view.matched_route() else {
            return nothing(self.optional, NO_ROUTE);
        };
        match template::capture(&route, view.path(), &self.name) {
            Captured::Value(value) => self.push(value, parts),
            Captured::NoSuchName if self.optional => Ok(None),
            Captured::NoSuchName => Err(ExtractError::setup(format!(
                "the route {route} has no parameter named {}",
                self.name
            ))),
            Captured::NoMatch => Err(ExtractError::setup(format!(
                "the path is not of the form of the route {route} that was matched"
            ))),
        }
    }

    fn validate(&self) -> Result<(), SetupError> {
        if self.name.is_empty() || self.name.contains(['{', '}', '*', '/', ':']) {
            return Err(SetupError::ParamName {
                name: self.name.clone(),
            });
        }
        Ok(())
    }
}

fn nothing(optional: bool, detail: &'static str) -> Result<Option<()>, ExtractError> {
    if optional {
        Ok(None)
    } else {
        Err(ExtractError::bad_request(detail))
    }
}

fn push_decoded(encoded: &str, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
    let decoded: Cow<'_, str> = percent_decode_str(encoded)
        .decode_utf8()
        .map_err(|_| ExtractError::bad_request("the path is not valid UTF-8"))?;
    parts.push(&decoded);
    Ok(Some(()))
}

const NO_ROUTE: &str = "the request matched no route that the service knows of";
