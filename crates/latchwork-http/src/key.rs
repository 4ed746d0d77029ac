//! From a request to a key.
//!
//! | extractor | the part of the key |
//! |---|---|
//! | a text, such as `"order"` | itself: put one first, so that keys of two resources differ |
//! | [`segment`] | one segment of the path, by position |
//! | [`param`] | one parameter of the matched route, by name |
//! | [`route`] | the template of the matched route |
//! | [`header`](fn@header) | the value of a header |
//! | [`client`](fn@client) | the client's address |
//! | [`by`](fn@by) | whatever a closure makes of the request |
//! | a [`Key`] | itself, when it stands alone |
//! | a tuple of these | their parts in order, each with its length: `("a", "bc")` is not `("ab", "c")` |
//!
//! What a request lacks is answered with 400, for a request without a key would slip past the lock. The extractors'
//! `optional()` lets it pass without one instead.

mod by;
mod client;
mod forwarded;
mod header;
mod parts;
mod path;
mod template;
mod tuple;

use std::{borrow::Cow, fmt, sync::Arc};

use latchwork_core::{Key, Namespace, key::KeyError, slots::SlotsError};

pub use by::{By, IntoParts, by};
pub use client::{ClientAddress, ForwardedHeader, client};
pub use header::{Header, header};
pub use parts::KeyParts;
pub use path::{Param, Route, Segment, param, route, segment};

/// Takes a key, or a part of one, out of a request.
///
/// Implemented by everything in [`key`](self). `V` is the request as the framework shows it.
pub trait ExtractKey<V>: fmt::Debug + Send + Sync + 'static {
    /// Adds this extractor's parts. `Ok(None)` lets the request pass without a key, whatever the other parts are.
    ///
    /// # Errors
    ///
    /// [`ExtractError`] if the request has no usable key. It is answered with 400, or with 500 if the service is set
    /// up wrong.
    fn extract(&self, view: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError>;

    /// Looks, when a policy is made, for what can never work.
    ///
    /// # Errors
    ///
    /// [`SetupError`], which says what to change.
    fn validate(&self) -> Result<(), SetupError> {
        Ok(())
    }
}

impl<V: 'static> ExtractKey<V> for Arc<dyn ExtractKey<V>> {
    fn extract(&self, view: &V, parts: &mut KeyParts) -> Result<Option<()>, ExtractError> {
        (**self).extract(view, parts)
    }

    fn validate(&self) -> Result<(), SetupError> {
        (**self).validate()
    }
}

/// The key that a request asks for; `None` if it passes without one.
pub(crate) fn key_of<V: 'static>(
    extractor: &dyn ExtractKey<V>,
    view: &V,
    namespace: &Namespace,
) -> Result<Option<Key>, ExtractError> {
    let mut parts = KeyParts::default();
    if extractor.extract(view, &mut parts)?.is_none() {
        return Ok(None);
    }
    let key = parts.key(namespace).map_err(|error| ExtractError::from_key(&error))?;
    Ok(Some(key))
}

/// Why a request has no usable key. The text is shown to the client, so it never repeats what the client sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct ExtractError {
    detail: Cow<'static, str>,
    setup: bool,
}

impl ExtractError {
    /// The client's fault: answered with 400.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            detail: detail.into(),
            setup: false,
        }
    }

    /// The service's fault: answered with 500.
    pub fn setup(detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            detail: detail.into(),
            setup: true,
        }
    }

    /// Whether the service and not the client is at fault.
    #[must_use]
    pub const fn is_setup(&self) -> bool {
        self.setup
    }

    pub(crate) fn into_detail(self) -> Cow<'static, str> {
        self.detail
    }

    /// What the core says of a name is written for developers; this is for clients.
    pub(crate) const fn from_key(error: &KeyError) -> Self {
        let detail = match error {
            KeyError::EmptyName => "the part of the request that names what to lock is empty",
            KeyError::NameTooLong { .. } => "the part of the request that names what to lock is too long",
            KeyError::NulInName { .. } => "the part of the request that names what to lock holds a NUL character",
            _ => "the part of the request that names what to lock cannot be used",
        };
        Self {
            detail: Cow::Borrowed(detail),
            setup: false,
        }
    }
}

/// Why a policy can never work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A text in a key is empty.
    #[error("a text in a key is empty: name the resource, such as \"order\"")]
    EmptyText,
    /// A text in a key is longer than a key's name may be, or holds a NUL character.
    #[error("a text in a key cannot be used")]
    Text(#[source] KeyError),
    /// No header can have that name.
    #[error("no header can have the name {name:?}: give the name alone, such as \"x-api-key\"")]
    HeaderName {
        /// The name that was given.
        name: String,
    },
    /// No route parameter can have that name.
    #[error(
        "no route parameter can have the name {name:?}: give it as between the braces of the route, such as \"id\""
    )]
    ParamName {
        /// The name that was given.
        name: String,
    },
    /// A range of addresses does not parse.
    #[error("{text:?} is no range of addresses: write it as \"10.0.0.0/8\", \"2001:db8::/32\" or a single address")]
    Cidr {
        /// The text that was given.
        text: String,
    },
    /// A range of trusted proxies that everybody is in.
    #[error("the range {text:?} trusts everybody, so that each client could choose its own address: list the proxies")]
    TrustsEverybody {
        /// The text that was given.
        text: String,
    },
    /// A list of trusted proxies with nothing in it.
    #[error("the list of trusted proxies is empty: list their addresses, or leave `behind` out to key by the peer")]
    NoProxies,
    /// A prefix length that IPv6 does not have.
    #[error("an IPv6 network cannot have a prefix of {prefix} bits: give 1 to 128, 64 for one household or server")]
    Ipv6Prefix {
        /// The length that was given.
        prefix: u8,
    },
    /// There is no such pool of slots.
    #[error("the pool of slots cannot be made")]
    Slots(#[from] SlotsError),
    /// No limit can be named so in a header.
    #[error("a limit cannot have the name {name:?}: use letters, digits, '-', '_', '.' and '/'")]
    LimitName {
        /// What was given.
        name: String,
    },
    /// No response can be kept with this header.
    #[error("the header {name:?} cannot be kept: give the name of a header other than Set-Cookie")]
    KeptHeader {
        /// What was given.
        name: String,
    },
}
