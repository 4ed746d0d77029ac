//! The body of a response that may be ours.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The inner service's body, or that of a refusal.
    #[derive(Debug)]
    pub struct PolicyBody<B> {
        #[pin]
        kind: Kind<B>,
    }
}

pin_project! {
    #[derive(Debug)]
    #[project = KindProj]
    enum Kind<B> {
        Inner {
            #[pin]
            body: B,
        },
        Whole {
            bytes: Option<Bytes>,
            trailers: Option<HeaderMap>,
        },
    }
}

impl<B> PolicyBody<B> {
    pub(crate) fn inner(response: Response<B>) -> Response<Self> {
        response.map(Self::of)
    }

    pub(crate) const fn of(body: B) -> Self {
        Self {
            kind: Kind::Inner { body },
        }
    }

    /// A body that was read whole.
    pub(crate) fn bytes(bytes: Bytes) -> Self {
        Self::whole(bytes, None)
    }

    /// A body that was read whole, with what came after it.
    pub(crate) fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self {
            kind: Kind::Whole {
                bytes: Some(bytes).filter(|bytes| !bytes.is_empty()),
                trailers,
            },
        }
    }

    pub(crate) fn refusal(response: Response<Bytes>) -> Response<Self> {
        response.map(Self::bytes)
    }
}

/// Layers outside, such as CORS, answer with an empty body of their own.
impl<B: Default> Default for PolicyBody<B> {
    fn default() -> Self {
        let body = B::default();
        Self {
            kind: Kind::Inner { body },
        }
    }
}

impl<B> Body for PolicyBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.project().kind.project() {
            KindProj::Inner { body } => body.poll_frame(context),
            KindProj::Whole { bytes, trailers } => {
                let data = bytes.take().map(|bytes| Frame::data(bytes.into()));
                let frame = data.or_else(|| trailers.take().map(Frame::trailers));
                Poll::Ready(frame.map(Ok))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Whole { bytes, trailers } => bytes.is_none() && trailers.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Whole { bytes, .. } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Empty};

    use super::*;

    #[tokio::test]
    async fn a_body_that_was_read_whole_has_its_trailers_after_it() {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        for bytes in [Bytes::from_static(b"all"), Bytes::new()] {
            let body = PolicyBody::<Empty<Bytes>>::whole(bytes.clone(), Some(trailers.clone()));
            assert!(!body.is_end_stream());
            assert_eq!(body.size_hint().exact(), Some(bytes.len() as u64));
            let collected = body.collect().await.unwrap();
            assert_eq!(collected.trailers(), Some(&trailers));
            assert_eq!(collected.to_bytes(), bytes);
        }
    }
}
