//! How a handler says that it could not answer.

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use shop::ShopError;

/// Why a handler could not answer.
#[derive(Debug)]
pub(crate) struct Failed(ShopError);

impl<E: Into<ShopError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, self.0.text()).into_response()
    }
}
