//! What all policies share in how they refuse.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;

use crate::{
    Rejection, RequestView,
    view::{is_grpc, is_preflight},
};

/// The form that a refused request is answered in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResponseFormat {
    /// An HTTP status with problem+json.
    #[default]
    Problem,
    /// Status 200 with a gRPC status in the headers.
    Grpc,
}

impl ResponseFormat {
    /// The form that a request can read: gRPC for gRPC calls.
    #[must_use]
    pub fn of<V: RequestView>(view: &V) -> Self {
        if is_grpc(view) { Self::Grpc } else { Self::Problem }
    }
}

type OnReject = Arc<dyn Fn(&Rejection, Response<Bytes>) -> Response<Bytes> + Send + Sync>;

/// Which requests a policy leaves alone, and how it refuses the others.
#[derive(Clone)]
pub(crate) struct Refusal {
    pub(crate) retry_after: Duration,
    pub(crate) preflights: bool,
    pub(crate) on_reject: Option<OnReject>,
}

impl Refusal {
    pub(crate) fn leaves_alone<V: RequestView>(&self, view: &V) -> bool {
        !self.preflights && is_preflight(view)
    }

    pub(crate) fn respond(&self, rejection: &Rejection, format: ResponseFormat) -> Response<Bytes> {
        let response = rejection.response(format);
        let mut response = match &self.on_reject {
            Some(on_reject) => on_reject(rejection, response),
            None => response,
        };
        // Whatever the answer looks like, policies and middleware outside can tell that it is no handler's.
        response.extensions_mut().insert(rejection.kind());
        response
    }
}

impl Default for Refusal {
    fn default() -> Self {
        Self {
            retry_after: Duration::from_secs(1),
            preflights: false,
            on_reject: None,
        }
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusal")
            .field("retry_after", &self.retry_after)
            .field("preflights", &self.preflights)
            .field("replaces", &self.on_reject.is_some())
            .finish()
    }
}
