use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a connection could not be encrypted as the settings ask.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TlsError {
    /// TLS is required, and this program was built without it.
    #[error(
        "sslmode={mode} needs TLS, and this program was built without it; enable the feature `tls` of \
         latchwork-postgres, or use sslmode=disable on a trusted network"
    )]
    NotBuilt {
        /// The mode that was asked for.
        mode: &'static str,
    },
    /// TLS is required, and the server does not offer it.
    #[error("the server does not offer TLS; turn ssl on there, or use sslmode=prefer if the network is trusted")]
    NotOffered,
    /// A certificate or key file cannot be read.
    #[error("the file {path:?} of `{key}` cannot be read; check that it exists and that this user may read it")]
    ReadFile {
        /// The connection setting that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A certificate or key file does not hold what it should.
    #[error("the file {path:?} of `{key}` is not usable; it must hold {expected} in PEM form")]
    BadFile {
        /// The connection setting that names the file.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What the file should hold.
        expected: &'static str,
    },
    /// The client's certificate and its key do not go together, or the key is of an unknown kind.
    #[error(
        "the client certificate of `sslcert` and the key of `sslkey` are not usable together; check that they belong to each other"
    )]
    ClientCertificate {
        /// What rustls says.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The operating system has no root certificates where they are looked for.
    #[error(
        "no root certificate of the operating system was found; install ca-certificates, or set sslrootcert to a file"
    )]
    NoSystemRoots,
    /// The host is neither a DNS name nor an IP address.
    #[error("the host {host:?} is not a name that TLS can use; connect by a DNS name or an IP address")]
    HostName {
        /// The host.
        host: String,
    },
    /// The certificate leads to no trusted root.
    #[error(
        "the server's certificate leads to no trusted root; set sslrootcert to the file of the authority that signed it"
    )]
    Untrusted {
        /// What rustls says.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The certificate is made out for other names.
    #[error(
        "the server's certificate is not made out for {host:?}; connect by a name that is in it, or use \
         sslmode=verify-ca if any server of that authority will do"
    )]
    WrongHost {
        /// The host that was connected to.
        host: String,
        /// What rustls says.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The certificate has run out, or is not valid yet.
    #[error("the server's certificate is not valid at this time; renew it, or set the clock of this machine")]
    Expired {
        /// What rustls says.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The certificate is of X.509 version 1, and the server speaks TLS 1.2 at most.
    #[error(
        "the server's certificate is of X.509 version 1, which works with TLS 1.3 only; issue it again with extensions \
         (openssl x509 -req -extfile ..), or let the server speak TLS 1.3"
    )]
    OldCertificate {
        /// What rustls says.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The handshake failed in another way.
    #[error("the TLS handshake with the server failed; see the cause, and the server's log")]
    Handshake {
        /// What went wrong.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl TlsError {
    /// Says whether the same settings will fail again until somebody changes them, or the server's certificate.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        !matches!(self, Self::Handshake { .. } | Self::Expired { .. } | Self::NotOffered)
    }
}
