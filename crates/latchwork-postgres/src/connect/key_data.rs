use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

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
