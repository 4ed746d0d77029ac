//! Streams that the driver cannot close.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// A stream as it comes back.
pub(super) type Returned = Box<dyn AsyncRead + Send + Unpin>;

/// The way back, for the first stream that the driver lets go of: the encrypted one, or the plain one if there is none.
#[derive(Clone)]
pub(super) struct WayBack(Arc<Mutex<Option<oneshot::Sender<Returned>>>>);

impl WayBack {
    pub(super) fn new() -> (Self, oneshot::Receiver<Returned>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), receiver)
    }

    fn take(&self) -> Option<oneshot::Sender<Returned>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A stream that ignores a shutdown, and goes back where it came from when the driver drops it.
pub(super) struct Kept<S: AsyncRead + Send + Unpin + 'static> {
    stream: Option<S>,
    way_back: WayBack,
}

impl<S: AsyncRead + Send + Unpin + 'static> Kept<S> {
    pub(super) fn new(stream: S, way_back: WayBack) -> Self {
        Self {
            stream: Some(stream),
            way_back,
        }
    }

    fn inner(self: Pin<&mut Self>) -> io::Result<Pin<&mut S>> {
        self.get_mut()
            .stream
            .as_mut()
            .map(Pin::new)
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<S: AsyncRead + Send + Unpin + 'static> Drop for Kept<S> {
    fn drop(&mut self) {
        if let (Some(stream), Some(back)) = (self.stream.take(), self.way_back.take()) {
            // Nobody waits for it when the request has failed.
            let _ = back.send(Box::new(stream));
        }
    }
}

impl<S: AsyncRead + Send + Unpin + 'static> AsyncRead for Kept<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> AsyncWrite for Kept<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}

impl<S: TlsStream + Send + Unpin + 'static> TlsStream for Kept<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream
            .as_ref()
            .map_or_else(ChannelBinding::none, TlsStream::channel_binding)
    }
}

/// A handshake whose stream is kept.
pub(super) struct KeptHandshake<H> {
    pub(super) handshake: H,
    pub(super) way_back: WayBack,
}

impl<S, H> TlsConnect<S> for KeptHandshake<H>
where
    H: TlsConnect<S>,
    H::Stream: Send + 'static,
    H::Future: Send + 'static,
{
    type Stream = Kept<H::Stream>;
    type Error = H::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, H::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let (handshaking, way_back) = (self.handshake.connect(stream), self.way_back);
        Box::pin(async move { Ok(Kept::new(handshaking.await?, way_back)) })
    }
}
