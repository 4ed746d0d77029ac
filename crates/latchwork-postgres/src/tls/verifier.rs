use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use super::x509::{self, VersionOne};

/// What is asked of the server's certificate.
#[derive(Debug)]
pub(super) struct Trust {
    /// `None`: any certificate will do.
    roots: Option<Arc<RootCertStore>>,
    /// The roots as they stand in the file, to recognise a server that shows one of them as its own.
    certificates: Vec<CertificateDer<'static>>,
    host_name: bool,
}

impl Trust {
    pub(super) fn anything() -> Self {
        Self {
            roots: None,
            certificates: Vec::new(),
            host_name: false,
        }
    }

    pub(super) fn chain(certificates: Vec<CertificateDer<'static>>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        Self {
            roots: Some(Arc::new(roots)),
            certificates,
            host_name: false,
        }
    }

    pub(super) fn full(certificates: Vec<CertificateDer<'static>>) -> Self {
        Self {
            host_name: true,
            ..Self::chain(certificates)
        }
    }
}

/// Checks certificates as libpq does for each `sslmode`.
///
/// The signature of the handshake is checked in every mode: without it a middleman could show the server's own
/// certificate, and channel binding would prove nothing.
#[derive(Debug)]
pub(super) struct Verifier {
    trust: Trust,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(trust: Trust, provider: &CryptoProvider) -> Self {
        Self {
            trust,
            algorithms: provider.signature_verification_algorithms,
        }
    }

    fn verify_chain(
        &self,
        roots: &RootCertStore,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        // A self-signed certificate that is its own root: libpq takes it, and rustls' path building does not.
        if self.trust.certificates.iter().any(|root| root == end_entity) {
            return x509::check_validity(end_entity, now);
        }
        if x509::version_one_key(end_entity).is_some() {
            return x509::check_issued_by_root(end_entity, &self.trust.certificates, self.algorithms.all, now);
        }
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, intermediates, now, self.algorithms.all)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.trust.roots {
            self.verify_chain(roots, end_entity, intermediates, now)?;
        }
        if self.trust.host_name {
            verify_host(end_entity, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if x509::version_one_key(cert).is_some() {
            return Err(VersionOne.into());
        }
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match x509::version_one_key(cert) {
            Some(key) => verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms),
            None => verify_tls13_signature(message, cert, dss, &self.algorithms),
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// As in libpq: the common name counts when the certificate has no alternative names.
fn verify_host(end_entity: &CertificateDer<'_>, host: &ServerName<'_>) -> Result<(), Error> {
    let checked = match ParsedCertificate::try_from(end_entity) {
        Ok(parsed) => verify_server_name(&parsed, host),
        // Version 1 has no alternative names.
        Err(_) => Err(CertificateError::NotValidForName.into()),
    };
    match checked {
        Err(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) if x509::common_name_matches(end_entity, host) => Ok(()),
        checked => checked,
    }
}
