//! From the answers of the policies to responses of actix-web, which has its own types of them.

use std::fmt;

use actix_web::{
    HttpResponse, ResponseError,
    body::{EitherBody, MessageBody},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        StatusCode,
        header::{HeaderMap, HeaderName, HeaderValue},
    },
};
use bytes::Bytes;
use http::Response;
use latchwork_http::{RejectionKind, ResponseView};

/// The answer to a request that is not let in. It is no error, so that every middleware outside sees a response.
pub(crate) fn refuse<B: MessageBody>(
    request: ServiceRequest,
    response: &Response<Bytes>,
) -> ServiceResponse<EitherBody<B>> {
    request.into_response(answer(response)).map_into_right_body()
}

/// The answer to a request that was handled before.
pub(crate) fn replay<B>(request: ServiceRequest, response: &Response<Bytes>) -> ServiceResponse<EitherBody<B>> {
    request.into_response(answer(response)).map_into_right_body()
}

/// The answer to a request whose handler's own cannot stand.
pub(crate) fn replace<R, B>(handled: ServiceResponse<R>, response: &Response<Bytes>) -> ServiceResponse<EitherBody<B>> {
    handled.into_response(answer(response)).map_into_right_body()
}

/// What one of our middlewares has answered in the handler's place.
pub(crate) fn refused<B>(response: &ServiceResponse<B>) -> Option<RejectionKind> {
    response.response().extensions().get().copied()
}

/// Both sides know the same statuses and headers, in different versions of one crate.
pub(crate) fn answer(response: &Response<Bytes>) -> HttpResponse {
    let mut answer = HttpResponse::build(status(response)).body(response.body().clone());
    append(answer.headers_mut(), response.headers());
    if let Some(kind) = response.extensions().get::<RejectionKind>() {
        answer.extensions_mut().insert(*kind);
    }
    answer
}

/// Adds headers to those that are there.
pub(crate) fn append<'a>(
    to: &mut HeaderMap,
    headers: impl IntoIterator<Item = (&'a http::HeaderName, &'a http::HeaderValue)>,
) {
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes());
        let value = HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value) {
            to.append(name, value);
        }
    }
}

fn status(response: &Response<Bytes>) -> StatusCode {
    StatusCode::from_u16(response.status().as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A response of actix-web as the policies see it.
pub(crate) struct ResponseHead<'a> {
    status: http::StatusCode,
    headers: &'a HeaderMap,
}

impl<'a> ResponseHead<'a> {
    pub(crate) fn of<B>(response: &'a ServiceResponse<B>) -> Self {
        let status = http::StatusCode::from_u16(response.status().as_u16());
        Self {
            status: status.unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR),
            headers: response.headers(),
        }
    }
}

impl ResponseView for ResponseHead<'_> {
    fn status(&self) -> http::StatusCode {
        self.status
    }

    fn headers(&self, name: &str, visit: &mut dyn FnMut(&[u8])) {
        self.headers.get_all(name).for_each(|value| visit(value.as_bytes()));
    }
}

/// The handler was stopped midway. The request went with it, and without one actix-web has no response but that of an
/// error.
#[derive(Debug)]
pub(crate) struct Stopped {
    what: &'static str,
    response: Response<Bytes>,
}

impl Stopped {
    pub(crate) const fn new(what: &'static str, response: Response<Bytes>) -> Self {
        Self { what, response }
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

impl ResponseError for Stopped {
    fn status_code(&self) -> StatusCode {
        status(&self.response)
    }

    fn error_response(&self) -> HttpResponse {
        answer(&self.response)
    }
}
