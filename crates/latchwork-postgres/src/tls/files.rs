//! Certificates and keys from PEM files.

use std::fs;
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

/// Reads every certificate of a file.
pub(super) fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = || TlsError::BadFile {
        key,
        path: path.to_owned(),
        expected: "at least one certificate",
    };
    let text = read(key, path)?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| bad())?;
    if certificates.is_empty() {
        Err(bad())
    } else {
        Ok(certificates)
    }
}

/// Reads the first private key of a file: PKCS#8, PKCS#1 or SEC1, not encrypted.
pub(super) fn private_key(key: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(key, path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| TlsError::BadFile {
        key,
        path: path.to_owned(),
        expected: if is_encrypted(&text) {
            "a private key that is not encrypted (decrypt it, and protect it by the file's permissions)"
        } else {
            "a private key"
        },
    })
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::ReadFile {
        key,
        path: path.to_owned(),
        source,
    })
}

fn is_encrypted(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED")
}
