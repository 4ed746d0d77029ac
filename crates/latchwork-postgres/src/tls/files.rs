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

#[cfg(test)]
mod tests {
    use super::*;

    fn key_file(text: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
        let path = std::env::temp_dir().join(format!("latchwork-key-{:016x}", fastrand::u64(..)));
        fs::write(&path, text).unwrap();
        let read = private_key("sslkey", &path);
        fs::remove_file(&path).unwrap();
        read
    }

    fn pem(label: &str, headers: &str) -> String {
        format!("-----BEGIN {label}-----\n{headers}AAECAw==\n-----END {label}-----\n")
    }

    #[test]
    fn keys_are_read_in_three_forms() {
        assert!(matches!(key_file(&pem("PRIVATE KEY", "")), Ok(PrivateKeyDer::Pkcs8(_))));
        assert!(matches!(
            key_file(&pem("RSA PRIVATE KEY", "")),
            Ok(PrivateKeyDer::Pkcs1(_))
        ));
        assert!(matches!(
            key_file(&pem("EC PRIVATE KEY", "")),
            Ok(PrivateKeyDer::Sec1(_))
        ));
    }

    #[test]
    fn a_key_is_found_behind_a_certificate() {
        let both = pem("CERTIFICATE", "") + &pem("PRIVATE KEY", "");
        assert!(matches!(key_file(&both), Ok(PrivateKeyDer::Pkcs8(_))));
    }

    #[test]
    fn encrypted_keys_say_that_they_are() {
        let headers = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n";
        for text in [pem("ENCRYPTED PRIVATE KEY", ""), pem("RSA PRIVATE KEY", headers)] {
            let error = key_file(&text).unwrap_err();
            assert!(error.to_string().contains("not encrypted"), "{error}");
        }
        let error = key_file(&pem("CERTIFICATE", "")).unwrap_err();
        assert!(!error.to_string().contains("not encrypted"), "{error}");
    }
}
