//! The `Idempotency-Key` header (draft-ietf-httpapi-idempotency-key-header).

use crate::{RequestView, view::single_header};

/// The name of the header.
const NAME: &str = "idempotency-key";
/// The most characters of a key.
const MAX_LEN: usize = 255;

/// What is wrong with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Twice,
    Empty,
    TooLong,
    NotPrintable,
    BadQuotes,
}

impl Malformed {
    pub(crate) const fn detail(self) -> &'static str {
        match self {
            Self::Twice => "the header Idempotency-Key was sent more than once",
            Self::Empty => "the Idempotency-Key is empty",
            Self::TooLong => "the Idempotency-Key has more than 255 characters",
            Self::NotPrintable => "the Idempotency-Key holds something else than printable ASCII characters",
            Self::BadQuotes => "the Idempotency-Key begins with a quote and is no quoted string",
        }
    }
}

/// The request's key, if it has one. A key may be quoted, as the draft has it, or bare, as most clients send it; both
/// are the same key.
pub(crate) fn idempotency_key<V: RequestView>(view: &V) -> Result<Option<String>, Malformed> {
    match single_header(view, NAME) {
        Ok(None) => Ok(None),
        Ok(Some(value)) => parse(value.trim_ascii()).map(Some),
        Err(()) => Err(Malformed::Twice),
    }
}

fn parse(value: &[u8]) -> Result<String, Malformed> {
    let key = match value {
        [b'"', quoted @ ..] => unquoted(quoted)?,
        bare if bare.iter().all(u8::is_ascii_graphic) => bare.iter().map(|byte| char::from(*byte)).collect(),
        _ => return Err(Malformed::NotPrintable),
    };
    match key.len() {
        0 => Err(Malformed::Empty),
        1..=MAX_LEN => Ok(key),
        _ => Err(Malformed::TooLong),
    }
}

/// Reads a string of structured fields (RFC 9651, section 3.3.3) after its first quote.
fn unquoted(quoted: &[u8]) -> Result<String, Malformed> {
    let mut key = String::with_capacity(quoted.len());
    let mut rest = quoted.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' if rest.as_slice().is_empty() => return Ok(key),
            b'"' => return Err(Malformed::BadQuotes),
            b'\\' => match rest.next() {
                Some(escaped @ (b'"' | b'\\')) => key.push(char::from(*escaped)),
                _ => return Err(Malformed::BadQuotes),
            },
            b' '..=b'~' => key.push(char::from(*byte)),
            _ => return Err(Malformed::NotPrintable),
        }
    }
    Err(Malformed::BadQuotes)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(values: &[&[u8]]) -> Result<Option<String>, Malformed> {
        let mut request = Request::post("/");
        for value in values {
            request = request.header("Idempotency-Key", *value);
        }
        idempotency_key(&request.body(()).unwrap())
    }

    fn key(text: &str) -> Result<Option<String>, Malformed> {
        Ok(Some(text.to_owned()))
    }

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[b"8e03978e-40d5-43dd"]), key("8e03978e-40d5-43dd"));
        assert_eq!(of(&[b"\"8e03978e-40d5-43dd\""]), key("8e03978e-40d5-43dd"));
        assert_eq!(of(&[b" \"a b\" "]), key("a b"));
        assert_eq!(of(&[br#""say \"a\\b\"""#]), key(r#"say "a\b""#));
    }

    #[test]
    fn what_is_no_key_is_told_apart_from_a_missing_one() {
        assert_eq!(of(&[b"a", b"a"]), Err(Malformed::Twice));
        assert_eq!(of(&[b""]), Err(Malformed::Empty));
        assert_eq!(of(&[b"\"\""]), Err(Malformed::Empty));
        assert_eq!(of(&["schlüssel".as_bytes()]), Err(Malformed::NotPrintable));
        assert_eq!(of(&["\"schlüssel\"".as_bytes()]), Err(Malformed::NotPrintable));
        assert_eq!(of(&[b"a b"]), Err(Malformed::NotPrintable));
        for quotes in [&b"\"a"[..], b"\"a\"b\"", b"\"a\\", b"\"a\\x\"", b"\""] {
            assert_eq!(of(&[quotes]), Err(Malformed::BadQuotes), "{quotes:?}");
        }
    }

    #[test]
    fn a_key_has_at_most_255_characters() {
        let longest = "k".repeat(255);
        assert_eq!(of(&[longest.as_bytes()]), key(&longest));
        assert_eq!(of(&[format!("{longest}k").as_bytes()]), Err(Malformed::TooLong));
        assert_eq!(of(&[format!("\"{longest}\"").as_bytes()]), key(&longest));
    }
}
