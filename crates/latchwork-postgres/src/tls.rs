//! TLS with rustls, with libpq's meaning of each `sslmode`.

mod error;
#[cfg(feature = "tls")]
mod files;
#[cfg(feature = "tls")]
mod rustls_connector;
#[cfg(feature = "tls")]
mod verifier;
#[cfg(feature = "tls")]
mod x509;

use crate::config::{Config, SslMode};

pub use error::TlsError;
#[cfg(feature = "tls")]
pub use rustls_connector::{Handshaking, TlsConnector, TlsHandshake};

#[cfg(not(feature = "tls"))]
pub use without_tls::TlsConnector;

/// The stream type of a connection that may be encrypted.
#[cfg(feature = "tls")]
pub(crate) type Encrypted<S> = rustls_connector::Stream<S>;
#[cfg(not(feature = "tls"))]
pub(crate) type Encrypted<S> = <tokio_postgres::NoTls as tokio_postgres::tls::TlsConnect<S>>::Stream;

impl Config {
    /// Makes the connector that these settings ask for, for use with the driver's own `connect`, or with a pool.
    ///
    /// Reads the certificate files, so it may block for a moment.
    ///
    /// # Errors
    ///
    /// [`TlsError`] when TLS is required but not built in, or a file cannot be used.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use latchwork_postgres::config::Config;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let config: Config = "postgres://app@db/shop?sslmode=verify-full&sslrootcert=/etc/app/root.pem".parse()?;
    /// let (client, connection) = config.to_tokio_postgres().connect(config.tls_connector()?).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn tls_connector(&self) -> Result<TlsConnector, TlsError> {
        #[cfg(feature = "tls")]
        return TlsConnector::new(self);
        #[cfg(not(feature = "tls"))]
        return TlsConnector::new(self.ssl_mode());
    }
}

/// Whether TLS is built in.
pub(crate) const AVAILABLE: bool = cfg!(feature = "tls");

/// The settings of the driver for one attempt over TCP.
pub(crate) fn driver_mode(mode: SslMode) -> tokio_postgres::config::SslMode {
    match mode {
        SslMode::Disable | SslMode::Allow => tokio_postgres::config::SslMode::Disable,
        SslMode::Prefer => tokio_postgres::config::SslMode::Prefer,
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => tokio_postgres::config::SslMode::Require,
    }
}

#[cfg(not(feature = "tls"))]
mod without_tls {
    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio_postgres::NoTls;
    use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

    use super::TlsError;
    use crate::config::SslMode;

    /// Stands where the TLS connector would be; this build has none.
    #[derive(Debug, Clone)]
    pub struct TlsConnector(());

    impl TlsConnector {
        pub(super) fn new(mode: SslMode) -> Result<Self, TlsError> {
            if mode.requires_tls() {
                Err(TlsError::NotBuilt { mode: mode.name() })
            } else {
                Ok(Self(()))
            }
        }

        pub(crate) fn none() -> Self {
            Self(())
        }
    }

    impl<S> MakeTlsConnect<S> for TlsConnector
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        type Stream = <NoTls as TlsConnect<S>>::Stream;
        type TlsConnect = NoTls;
        type Error = TlsError;

        fn make_tls_connect(&mut self, _: &str) -> Result<NoTls, TlsError> {
            Ok(NoTls)
        }
    }

    #[cfg(test)]
    mod tests {
        use crate::config::Config;

        #[test]
        fn modes_that_need_tls_say_that_it_is_not_built_in() {
            for mode in ["require", "verify-full"] {
                let config: Config = format!("sslmode={mode}").parse().unwrap();
                let error = config.tls_connector().unwrap_err();
                assert!(error.to_string().contains("feature `tls`"), "{error}");
                assert!(error.is_permanent());
            }
            for mode in ["disable", "allow", "prefer"] {
                let config: Config = format!("sslmode={mode}").parse().unwrap();
                assert!(config.tls_connector().is_ok());
            }
        }
    }
}
