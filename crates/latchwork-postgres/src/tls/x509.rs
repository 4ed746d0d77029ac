//! The few fields of a certificate that rustls does not show.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use rustls::pki_types::{
    CertificateDer, ServerName, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::{CertificateError, Error, OtherError};
use x509_cert::der::asn1::{AnyRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::{Decode, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_cert::{Certificate, Version};

/// Checks that a certificate is valid at a time.
pub(super) fn check_validity(der: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let validity = parse(der)?.tbs_certificate.validity;
    let now = now.as_secs();
    if now < validity.not_before.to_unix_duration().as_secs() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.to_unix_duration().as_secs() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}

/// A certificate of version 1, as `openssl x509 -req` makes without extensions. rustls does not read those.
#[derive(Debug, Clone, Copy)]
pub(super) struct VersionOne;

impl fmt::Display for VersionOne {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the certificate is of X.509 version 1")
    }
}

impl StdError for VersionOne {}

impl From<VersionOne> for Error {
    fn from(error: VersionOne) -> Self {
        CertificateError::Other(OtherError(Arc::new(error))).into()
    }
}

/// The public key of a certificate of version 1, which rustls does not take apart.
pub(super) fn version_one_key(der: &CertificateDer<'_>) -> Option<SubjectPublicKeyInfoDer<'static>> {
    let body = parse(der).ok()?.tbs_certificate;
    if body.version != Version::V1 {
        return None;
    }
    Some(SubjectPublicKeyInfoDer::from(
        body.subject_public_key_info.to_der().ok()?,
    ))
}

/// Checks that one of `roots` has issued a certificate of version 1, itself and not through others.
pub(super) fn check_issued_by_root(
    der: &CertificateDer<'_>,
    roots: &[CertificateDer<'_>],
    algorithms: &[&dyn SignatureVerificationAlgorithm],
    now: UnixTime,
) -> Result<(), Error> {
    check_validity(der, now)?;
    let certificate = parse(der)?;
    let issued_by = |root: &CertificateDer<'_>| {
        let root = parse(root).ok()?.tbs_certificate;
        let key = root.subject_public_key_info;
        let message = certificate.tbs_certificate.to_der().ok()?;
        let (method, key_kind) = (contents(&certificate.signature_algorithm)?, contents(&key.algorithm)?);
        let (key, signature) = (key.subject_public_key.as_bytes()?, certificate.signature.as_bytes()?);
        let names_match = root.subject == certificate.tbs_certificate.issuer;
        let signed = algorithms
            .iter()
            .filter(|a| *a.signature_alg_id() == *method && *a.public_key_alg_id() == *key_kind)
            .any(|algorithm| algorithm.verify_signature(key, &message, signature).is_ok());
        Some(names_match && signed)
    };
    if roots.iter().any(|root| issued_by(root) == Some(true)) {
        return Ok(());
    }
    Err(CertificateError::UnknownIssuer.into())
}

/// What stands inside the outer sequence of an algorithm's name, which is how rustls compares those.
fn contents(algorithm: &AlgorithmIdentifierOwned) -> Option<Vec<u8>> {
    let der = algorithm.to_der().ok()?;
    AnyRef::from_der(&der).ok().map(|any| any.value().to_vec())
}

/// Compares the host with the common name, if the certificate has no alternative names that could match a host.
pub(super) fn common_name_matches(der: &CertificateDer<'_>, host: &ServerName<'_>) -> bool {
    let Ok(certificate) = parse(der) else { return false };
    let body = &certificate.tbs_certificate;
    match body.get::<SubjectAltName>() {
        Ok(None) => {}
        Ok(Some((_, names))) if !names.0.iter().any(is_host) => {}
        _ => return false,
    }
    let common_name = body
        .subject
        .0
        .iter()
        .flat_map(|rdn| rdn.0.iter())
        .rfind(|pair| pair.oid == COMMON_NAME);
    let Some(value) = common_name.map(|pair| &pair.value) else {
        return false;
    };
    let text = value
        .decode_as::<Utf8StringRef<'_>>()
        .map(|text| text.as_str().to_owned())
        .or_else(|_| {
            value
                .decode_as::<PrintableStringRef<'_>>()
                .map(|text| text.as_str().to_owned())
        })
        .or_else(|_| {
            value
                .decode_as::<TeletexStringRef<'_>>()
                .map(|text| text.as_str().to_owned())
        });
    text.is_ok_and(|pattern| match host {
        ServerName::DnsName(host) => host_matches(&pattern, host.as_ref()),
        host => pattern == host.to_str(),
    })
}

fn is_host(name: &GeneralName) -> bool {
    matches!(name, GeneralName::DnsName(_) | GeneralName::IpAddress(_))
}

/// Compares without regard to case; a leading `*.` stands for exactly one label.
fn host_matches(pattern: &str, host: &str) -> bool {
    if pattern.eq_ignore_ascii_case(host) {
        return true;
    }
    match (pattern.strip_prefix("*."), host.split_once('.')) {
        (Some(parent), Some((label, rest))) => {
            !label.is_empty() && parent.contains('.') && parent.eq_ignore_ascii_case(rest)
        }
        _ => false,
    }
}

fn parse(der: &CertificateDer<'_>) -> Result<Certificate, Error> {
    Certificate::from_der(der).map_err(|_| CertificateError::BadEncoding.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_stands_for_one_label_under_a_domain() {
        assert!(host_matches("*.example.org", "db.example.org"));
        assert!(host_matches("DB.example.org", "db.EXAMPLE.org"));
        assert!(!host_matches("*.example.org", "a.db.example.org"));
        assert!(!host_matches("*.example.org", "example.org"));
        assert!(!host_matches("*.org", "example.org"));
        assert!(!host_matches("db.example.org", "db.example.com"));
    }
}
