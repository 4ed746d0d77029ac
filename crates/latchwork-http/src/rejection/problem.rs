//! Problem details (RFC 9457).

use std::fmt::Write;

use bytes::Bytes;
use http::{HeaderValue, Response, header};

use super::Rejection;

pub(super) fn response(rejection: &Rejection) -> Response<Bytes> {
    let kind = rejection.kind();
    let mut body = String::with_capacity(256);
    body.push_str("{\"type\":");
    push_text(&mut body, kind.problem_type());
    body.push_str(",\"title\":");
    push_text(&mut body, kind.title());
    body.push_str(",\"status\":");
    body.push_str(kind.status().as_str());
    body.push_str(",\"detail\":");
    push_text(&mut body, rejection.detail());
    body.push('}');
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = kind.status();
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    response
}

/// Adds a JSON string. Five texts are not worth a JSON library in everybody's build.
fn push_text(json: &mut String, text: &str) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            control if control < ' ' => {
                write!(json, "\\u{:04x}", u32::from(control)).expect("a String takes all that is written to it");
            }
            other => json.push(other),
        }
    }
    json.push('"');
}
