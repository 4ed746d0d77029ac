//! Why a handler could not answer.

use axum::{
    extract::rejection::JsonRejection,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use deadpool_postgres::PoolError;
use latchwork::Lost;

use crate::failure::chain;

/// What goes wrong in handlers. Refusals are the layers' affair, and do not come here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShopError {
    #[error("no connection to the database")]
    Pool(#[from] PoolError),
    #[error("the database refused a statement")]
    Statement(#[from] tokio_postgres::Error),
    #[error("the slot was lost with its connection to the database")]
    Slot(#[from] Lost),
    #[error("there is no slot any more")]
    NoSlot,
    #[error("the body is not what was expected")]
    Body(#[from] JsonRejection),
    #[error("the answer cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Body(rejection) => return rejection.into_response(),
            Self::Pool(_) | Self::Slot(_) | Self::NoSlot => StatusCode::SERVICE_UNAVAILABLE,
            Self::Statement(_) | Self::Json(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        // The cause is for those who run the shop, not for its clients.
        tracing::error!("{}", chain(&self));
        (status, format!("{self}\n")).into_response()
    }
}
