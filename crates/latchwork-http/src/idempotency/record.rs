//! A response as it is kept for those who ask again.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::ResponseView;

/// Said in a response that was kept, and not made anew.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What is kept of a response by default. Never cookies: they belong to the client that was there first.
pub(crate) const KEPT_BY_DEFAULT: [HeaderName; 9] = [
    header::CONTENT_TYPE,
    header::CONTENT_LANGUAGE,
    header::CONTENT_ENCODING,
    header::CONTENT_DISPOSITION,
    header::CONTENT_LOCATION,
    header::LOCATION,
    header::LINK,
    header::ETAG,
    header::LAST_MODIFIED,
];

/// Status, some headers, and the body byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredResponse {
    pub(crate) status: StatusCode,
    /// As [`encode_headers`] writes them.
    pub(crate) headers: Bytes,
    pub(crate) body: Bytes,
}

impl StoredResponse {
    /// Keeps the `kept` headers of a response.
    pub(crate) fn new(response: &dyn ResponseView, kept: &[HeaderName], body: Bytes) -> Self {
        Self {
            status: response.status(),
            headers: encode_headers(response, kept),
            body,
        }
    }

    /// The response for one who asks again; `None` if the record cannot be read.
    pub(crate) fn replay(self) -> Option<Response<Bytes>> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        decode_headers(self.headers, response.headers_mut())?;
        response
            .headers_mut()
            .insert(REPLAYED, HeaderValue::from_static("true"));
        Some(response)
    }
}

/// Each header as the length of its name and of its value (4 bytes big-endian each), then both.
fn encode_headers(response: &dyn ResponseView, kept: &[HeaderName]) -> Bytes {
    let mut bytes = BytesMut::new();
    for name in kept {
        response.headers(name.as_str(), &mut |value| {
            put(&mut bytes, name.as_str().as_bytes());
            put(&mut bytes, value);
        });
    }
    bytes.freeze()
}

fn decode_headers(mut bytes: Bytes, headers: &mut HeaderMap) -> Option<()> {
    while bytes.has_remaining() {
        let name = HeaderName::from_bytes(&take(&mut bytes)?).ok()?;
        headers.append(name, HeaderValue::from_maybe_shared(take(&mut bytes)?).ok()?);
    }
    Some(())
}

fn put(bytes: &mut BytesMut, part: &[u8]) {
    bytes.put_u32(u32::try_from(part.len()).expect("no header is that long"));
    bytes.put_slice(part);
}

fn take(bytes: &mut Bytes) -> Option<Bytes> {
    let length = bytes.try_get_u32().ok()? as usize;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn original() -> Response<()> {
        Response::builder()
            .status(201)
            .header("location", "/payments/7")
            .header("link", "</a>; rel=next")
            .header("link", "</b>; rel=prev")
            .header("x-odd", &b"\xe9\xff"[..])
            .header("set-cookie", "session=1")
            .header("date", "now")
            .body(())
            .unwrap()
    }

    #[test]
    fn a_replay_has_the_status_the_kept_headers_and_the_bytes() {
        let original = original();
        let kept: Vec<HeaderName> = [&KEPT_BY_DEFAULT[..], &[HeaderName::from_static("x-odd")]].concat();
        let stored = StoredResponse::new(&original, &kept, Bytes::from_static(b"\0\xff{}"));
        let replay = stored.replay().unwrap();
        assert_eq!(replay.status(), 201);
        assert_eq!(&replay.body()[..], b"\0\xff{}");
        let headers = replay.headers();
        assert_eq!(headers["location"], "/payments/7");
        assert_eq!(
            headers.get_all("link").iter().collect::<Vec<_>>(),
            ["</a>; rel=next", "</b>; rel=prev"]
        );
        assert_eq!(headers["x-odd"].as_bytes(), b"\xe9\xff");
        assert_eq!(headers[REPLAYED], "true");
        assert!(!headers.contains_key("set-cookie") && !headers.contains_key("date"));
    }

    #[test]
    fn a_record_that_was_cut_is_not_replayed() {
        let original = original();
        let whole = StoredResponse::new(&original, &KEPT_BY_DEFAULT, Bytes::new());
        for length in 1..whole.headers.len() {
            let cut = StoredResponse {
                headers: whole.headers.slice(..length),
                ..whole.clone()
            };
            // Cut between two headers it reads as fewer of them.
            if let Some(replay) = cut.replay() {
                assert!(replay.headers().len() < 1 + 3);
            }
        }
    }
}
