use http::HeaderName;

use super::{ExtractError, ExtractKey, KeyParts, SetupError};
use crate::view::{RequestView, single_header};

/// Takes the value of a header, byte for byte.
///
/// A request that has it not, or twice, or empty, or not in UTF-8, is rejected with 400.
///
/// Any client can send any header: for limits per client take one that was authenticated before, or the
/// [address](fn@super::client).
pub fn header(name: impl Into<String>) -> Header {
    Header {
        name: name.into(),
        optional: false,
    }
}

/// An extractor made by [`header`].
#[derive(Clone, Debug)]
pub struct Header {
    name: String,
    optional: bool,
}

impl Header {
    /// Lets a request without the header pass without a key. Default: it is rejected with 400.
    #[must_use]
    pub fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    fn rejected(&self, what: &str) -> ExtractError {
        ExtractError::bad_request(format!("the header {} {what}", self.name))
    }
}

impl<V: RequestView> ExtractKey<V> for Header {
    fn extract(&self, view: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        let value = single_header(view, &self.name).map_err(|()| self.rejected("was sent more than once"))?;
        let Some(value) = value else {
            return if self.optional {
                Ok(None)
            } else {
                Err(self.rejected("is missing"))
            };
        };
        match std::str::from_utf8(&value) {
            Ok("") => Err(self.rejected("is empty")),
            Ok(value) => {
                parts.push(value);
                Ok(Some(()))
            }
            Err(_) => Err(self.rejected("is not valid UTF-8")),
        }
    }

    fn validate(&self) -> Result<(), SetupError> {
        match HeaderName::from_bytes(self.name.as_bytes()) {
            Ok(_) => Ok(()),
            Err(_) => Err(SetupError::HeaderName {
                name: self.name.clone(),
            }),
        }
    }
}
