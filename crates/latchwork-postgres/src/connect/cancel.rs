use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_postgres::CancelToken;
use tokio_postgres::tls::MakeTlsConnect;

use super::kept::{Kept, KeptHandshake, WayBack};
use super::target::Target;
use crate::tls::TlsConnector;

/// Asks the server to stop the statement that runs in one session.
#[derive(Clone)]
pub struct Canceller {
    token: CancelToken,
    target: Target,
    tls: TlsConnector,
    limit: Duration,
}

/// Why a cancel request may not have reached the server.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CancelError {
    /// The server did not take the request in time.
    #[error("the server did not take the cancel request within {limit:?}; the statement may still run")]
    TimedOut {
        /// The limit that ran out.
        limit: Duration,
    },
    /// The request could not be sent.
    #[error("the cancel request could not be sent; the statement may still run")]
    Failed {
        /// What went wrong.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl Canceller {
    /// How long a caller waits for a cancel request at most.
    pub const LIMIT: Duration = Duration::from_secs(3);

    pub(super) fn new(token: CancelToken, target: Target, tls: TlsConnector) -> Self {
        Self {
            token,
            target,
            tls,
            limit: Self::LIMIT,
        }
    }

    /// Sends the request, over TLS if the session uses it, and waits until the server has passed it on.
    ///
    /// Wait for it before the next statement is sent, also when the statement has already ended: PostgreSQL signals
    /// a session twice for one request, and under load the second signal can come after the answer, and would stop
    /// what runs then. Once this has returned `Ok`, that is over, if the server is reached directly. It says nothing
    /// about whether a statement was running.
    ///
    /// # Cancel safety
    ///
    /// Dropped midway, the request is sent all the same, by a task of its own: PgBouncer (1.18, and others) ends with
    /// a fatal error when a client hangs up before its cancel request has been passed on.
    ///
    /// # Errors
    ///
    /// [`CancelError`] when the server has not taken it within [`LIMIT`](Self::LIMIT); it may still do so later.
    pub async fn cancel(&self) -> Result<(), CancelError> {
        let ours = self.clone();
        let sending = tokio::spawn(timeout(LAST_LIMIT, ours.deliver()));
        match timeout(self.limit, sending).await {
            Ok(Ok(Ok(sent))) => sent.map_err(|source| CancelError::Failed { source }),
            Ok(Err(source)) => Err(CancelError::Failed { source: source.into() }),
            Ok(Ok(Err(_))) | Err(_) => Err(CancelError::TimedOut { limit: self.limit }),
        }
    }

    async fn deliver(self) -> Result<(), Box<dyn StdError + Send + Sync>> {
        match &self.target {
            Target::Tcp { name, address, port } => {
                let stream = TcpStream::connect((*address, *port)).await?;
                stream.set_nodelay(true)?;
                self.deliver_over(stream, name).await
            }
            #[cfg(unix)]
            Target::Unix { folder, port } => {
                let stream = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?;
                self.deliver_over(stream, "").await
            }
            #[cfg(not(unix))]
            Target::Unix { .. } => Err(std::io::Error::from(std::io::ErrorKind::Unsupported).into()),
        }
    }

    async fn deliver_over<S>(&self, stream: S, host: &str) -> Result<(), Box<dyn StdError + Send + Sync>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (way_back, returned) = WayBack::new();
        let handshake = MakeTlsConnect::<Kept<S>>::make_tls_connect(&mut self.tls.clone(), host)?;
        let handshake = KeptHandshake {
            handshake,
            way_back: way_back.clone(),
        };
        self.token
            .cancel_query_raw(Kept::new(stream, way_back), handshake)
            .await?;
        // The server hangs up once it has signalled the session. We must not do so first: a request that a pooler has
        // not passed on yet would end the pooler.
        let mut stream = returned.await?;
        let mut rest = [0; 64];
        while matches!(stream.read(&mut rest).await, Ok(1..)) {}
        Ok(())
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller")
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// After how long a connection for a cancel request is given up, whatever that does to a pooler.
const LAST_LIMIT: Duration = Duration::from_secs(30);
