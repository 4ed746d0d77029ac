use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

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
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Canceller {
    /// How long a cancel request may take.
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
    /// Once this returns `Ok`, the request cannot hit a statement that is sent later. It says nothing about whether
    /// a statement was running.
    ///
    /// # Cancel safety
    ///
    /// Dropped midway, the request may or may not reach the server, possibly later.
    ///
    /// # Errors
    ///
    /// [`CancelError`] when the server cannot be reached within [`LIMIT`](Self::LIMIT).
    pub async fn cancel(&self) -> Result<(), CancelError> {
        match tokio::time::timeout(self.limit, self.send()).await {
            Ok(sent) => sent.map_err(|source| CancelError::Failed { source }),
            Err(_) => Err(CancelError::TimedOut { limit: self.limit }),
        }
    }

    async fn send(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        match &self.target {
            Target::Tcp { name, address, port } => {
                let stream = TcpStream::connect((*address, *port)).await?;
                stream.set_nodelay(true)?;
                self.send_over(stream, name).await
            }
            #[cfg(unix)]
            Target::Unix { folder, port } => {
                let stream = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?;
                self.send_over(stream, "").await
            }
            #[cfg(not(unix))]
            Target::Unix { .. } => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
        }
    }

    async fn send_over<S>(&self, stream: S, host: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut tls = self.tls.clone();
        let handshake = MakeTlsConnect::<Lent<S>>::make_tls_connect(&mut tls, host)?;
        let (back, returned) = oneshot::channel();
        self.token
            .cancel_query_raw(
                Lent {
                    stream: Some(stream),
                    back: Some(back),
                },
                handshake,
            )
            .await?;
        // The server closes the connection only after it has signalled the session.
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

/// Reads the process id that the server announced for the session. The driver keeps it to itself, but writes it into
/// every cancel request: so one is written, to nobody.
///
/// It differs from `pg_backend_pid()` when something stands between us and the server that makes up its own.
pub(crate) async fn key_data_pid(token: &CancelToken) -> io::Result<i32> {
    const LENGTH_AND_CODE: usize = 8;
    const CANCEL_REQUEST: usize = 16;
    let (ours, mut theirs) = tokio::io::duplex(256);
    // The answer to the driver's question whether this "server" speaks TLS.
    theirs.write_all(b"S").await?;
    token
        .cancel_query_raw(Passing(ours), Passing(()))
        .await
        .map_err(io::Error::other)?;
    let mut sent = Vec::new();
    theirs.read_to_end(&mut sent).await?;
    let request = sent.len().checked_sub(CANCEL_REQUEST).map(|start| &sent[start..]);
    match request.and_then(|request| request.get(LENGTH_AND_CODE..LENGTH_AND_CODE + 4)) {
        Some(&[a, b, c, d]) => Ok(i32::from_be_bytes([a, b, c, d])),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A stream that comes back when the driver is done with it.
struct Lent<S> {
    stream: Option<S>,
    back: Option<oneshot::Sender<S>>,
}

impl<S> Drop for Lent<S> {
    fn drop(&mut self) {
        if let (Some(stream), Some(back)) = (self.stream.take(), self.back.take()) {
            // Nobody waits for it when the cancelling future is gone.
            let _ = back.send(stream);
        }
    }
}

impl<S: Unpin> Lent<S> {
    fn inner(self: Pin<&mut Self>) -> io::Result<Pin<&mut S>> {
        self.get_mut()
            .stream
            .as_mut()
            .map(Pin::new)
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lent<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lent<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_shutdown(cx)
    }
}

/// Plays the part of a TLS stream, and of its handshake, without encrypting.
struct Passing<T>(T);

impl TlsConnect<Passing<DuplexStream>> for Passing<()> {
    type Stream = Passing<DuplexStream>;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Self::Stream>>;

    fn connect(self, stream: Self::Stream) -> Self::Future {
        std::future::ready(Ok(stream))
    }
}

impl TlsStream for Passing<DuplexStream> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Passing<DuplexStream> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Passing<DuplexStream> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
