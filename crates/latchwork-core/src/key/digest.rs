//! The canonical bytes of a name, in one place for all who hash them.

use hmac::digest::Output;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::{KeyError, MAX_NAME_LEN};

/// A hash that has taken in the namespace; each name goes into a copy of it.
#[derive(Clone)]
pub(super) enum Hasher {
    Plain(Sha256),
    Keyed(Hmac<Sha256>),
}

impl Hasher {
    pub(super) fn plain(namespace: &str) -> Self {
        let mut hasher = Self::Plain(Sha256::new());
        hasher.field(namespace.as_bytes());
        hasher
    }

    pub(super) fn keyed(namespace: &str, secret: &[u8]) -> Self {
        let mac = Hmac::new_from_slice(secret).expect("HMAC takes keys of any length");
        let mut hasher = Self::Keyed(mac);
        hasher.field(namespace.as_bytes());
        hasher
    }

    /// Hashes the parts of a name after the namespace.
    pub(super) fn name(&self, parts: &[&str]) -> Output<Sha256> {
        let mut hasher = self.clone();
        for part in parts {
            hasher.field(part.as_bytes());
        }
        match hasher {
            Self::Plain(sha) => sha.finalize(),
            Self::Keyed(mac) => mac.finalize().into_bytes(),
        }
    }

    fn field(&mut self, bytes: &[u8]) {
        let len = (bytes.len() as u32).to_be_bytes();
        match self {
            Self::Plain(sha) => {
                sha.update(len);
                sha.update(bytes);
            }
            Self::Keyed(mac) => {
                mac.update(&len);
                mac.update(bytes);
            }
        }
    }
}

/// Reads the first 8 bytes of a hash as a big-endian number.
pub(super) fn first_i64(hash: &[u8]) -> i64 {
    i64::from_be_bytes(*hash.first_chunk().expect("a SHA-256 hash has 32 bytes"))
}

/// Reads the first 4 bytes of a hash as a big-endian number.
pub(super) fn first_i32(hash: &[u8]) -> i32 {
    i32::from_be_bytes(*hash.first_chunk().expect("a SHA-256 hash has 32 bytes"))
}

/// Checks what every form of a name promises, so that Rust, constants and SQL always agree.
pub(super) fn check_name(parts: &[&str]) -> Result<(), KeyError> {
    let len = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
    if len == 0 {
        return Err(KeyError::EmptyName);
    }
    if len > MAX_NAME_LEN {
        return Err(KeyError::NameTooLong { len });
    }
    for (part, text) in parts.iter().enumerate() {
        if let Some(at) = text.bytes().position(|byte| byte == 0) {
            return Err(KeyError::NulInName { part, at });
        }
    }
    Ok(())
}
