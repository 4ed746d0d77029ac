use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, ConfigBuilder, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::verifier::{Trust, Verifier};
use super::x509::{self, VersionOne};
use super::{TlsError, files};
use crate::config::{Config, SslMode};

type Connect<S> = <MakeRustlsConnect as MakeTlsConnect<S>>::TlsConnect;

pub(super) type Stream<S> = <MakeRustlsConnect as MakeTlsConnect<S>>::Stream;

/// Encrypts connections as a [`Config`] asks; made by [`Config::tls_connector`].
///
/// Works with the driver's own `connect` and with pools, as any `MakeTlsConnect`.
#[derive(Clone)]
pub struct TlsConnector {
    /// `None` when the settings rule TLS out.
    rustls: Option<MakeRustlsConnect>,
}

impl TlsConnector {
    pub(super) fn new(config: &Config) -> Result<Self, TlsError> {
        if config.ssl_mode() == SslMode::Disable {
            return Ok(Self::none());
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = Arc::new(Verifier::new(trust(config)?, &provider));
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Handshake { source: error.into() })?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut rustls = match config.ssl_client_cert() {
            Some((cert, key)) => with_client_certificate(builder, cert, key)?,
            None => builder.with_no_client_auth(),
        };
        rustls.enable_sni = config.ssl_sni();
        // A server that is asked for TLS without the usual preface tells the protocol by this name.
        rustls.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self {
            rustls: Some(MakeRustlsConnect::new(rustls)),
        })
    }

    pub(crate) fn none() -> Self {
        Self { rustls: None }
    }
}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConnector")
            .field("tls", &self.rustls.is_some())
            .finish()
    }
}

fn with_client_certificate(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    cert: &Path,
    key: &Path,
) -> Result<ClientConfig, TlsError> {
    let refused = |error: rustls::Error| TlsError::ClientCertificate { source: error.into() };
    let (chain, key) = (
        files::certificates("sslcert", cert)?,
        files::private_key("sslkey", key)?,
    );
    if chain.first().is_none_or(|cert| x509::version_one_key(cert).is_none()) {
        return builder.with_client_auth_cert(chain, key).map_err(refused);
    }
    // rustls does not read such a certificate, and so does not compare it with the key; the server will.
    let key = builder
        .crypto_provider()
        .key_provider
        .load_private_key(key)
        .map_err(refused)?;
    let certified = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    Ok(builder.with_client_cert_resolver(Arc::new(certified)))
}

fn trust(config: &Config) -> Result<Trust, TlsError> {
    match (config.ssl_mode(), config.ssl_root_cert()) {
        (SslMode::VerifyFull, None) => Ok(Trust::full(system_roots()?)),
        (SslMode::VerifyFull, Some(path)) if path.as_os_str() == "system" => Ok(Trust::full(system_roots()?)),
        (SslMode::VerifyFull, Some(path)) => Ok(Trust::full(files::certificates("sslrootcert", path)?)),
        // As in libpq: a root certificate that is configured is used.
        (SslMode::VerifyCa | SslMode::Require, Some(path)) => {
            Ok(Trust::chain(files::certificates("sslrootcert", path)?))
        }
        (SslMode::VerifyCa, None) => Err(TlsError::NoSystemRoots),
        _ => Ok(Trust::anything()),
    }
}

fn system_roots() -> Result<Vec<rustls::pki_types::CertificateDer<'static>>, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    // Stores hold a certificate or two that no library parses; they are of no use, and no reason to stop.
    let (usable, _) = store.add_parsable_certificates(found.certs.iter().cloned());
    if usable == 0 {
        Err(TlsError::NoSystemRoots)
    } else {
        Ok(found.certs)
    }
}

impl<S> MakeTlsConnect<S> for TlsConnector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type TlsConnect = TlsHandshake<S>;
    type Error = TlsError;

    fn make_tls_connect(&mut self, host: &str) -> Result<TlsHandshake<S>, TlsError> {
        // No name at all is a unix socket, where the driver never gets as far as a handshake.
        let usable = ServerName::try_from(host).is_ok();
        if !usable && !host.is_empty() {
            return Err(TlsError::HostName { host: host.to_owned() });
        }
        let rustls = self.rustls.as_mut().filter(|_| usable);
        let connect = rustls.map(|rustls| MakeTlsConnect::<S>::make_tls_connect(rustls, host));
        let connect = connect.map(|Ok(connect)| connect);
        Ok(TlsHandshake {
            host: host.to_owned(),
            connect,
        })
    }
}

/// One handshake that is still to be made.
pub struct TlsHandshake<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    host: String,
    connect: Option<Connect<S>>,
}

impl<S> fmt::Debug for TlsHandshake<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsHandshake")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl<S> TlsConnect<S> for TlsHandshake<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Stream<S>;
    type Error = TlsError;
    type Future = Handshaking<S>;

    fn connect(self, stream: S) -> Handshaking<S> {
        Handshaking {
            host: self.host,
            running: self.connect.map(|connect| connect.connect(stream)),
        }
    }
}

/// The handshake on its way.
pub struct Handshaking<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    host: String,
    running: Option<<Connect<S> as TlsConnect<S>>::Future>,
}

impl<S> fmt::Debug for Handshaking<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshaking")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

impl<S> Future for Handshaking<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Output = Result<Stream<S>, TlsError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(running) = &mut this.running else {
            return Poll::Ready(Err(TlsError::HostName {
                host: this.host.clone(),
            }));
        };
        Pin::new(running).poll(cx).map_err(|error| explain(error, &this.host))
    }
}

fn explain(error: io::Error, host: &str) -> TlsError {
    let certificate = match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(certificate)) => certificate.clone(),
        _ => return TlsError::Handshake { source: error.into() },
    };
    let source = Box::new(error);
    match certificate {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsError::Untrusted { source },
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => TlsError::WrongHost {
            host: host.to_owned(),
            source,
        },
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => TlsError::Expired { source },
        CertificateError::Other(other) if other.0.is::<VersionOne>() => TlsError::OldCertificate { source },
        _ => TlsError::Handshake { source },
    }
}
