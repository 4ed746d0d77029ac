//! How a handler says that it could not answer.

use std::fmt;

use actix_web::{
    HttpResponse, ResponseError,
    http::{StatusCode, header::ContentType},
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

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for Failed {
    fn status_code(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    fn error_response(&self) -> HttpResponse {
        HttpResponse::build(self.status_code())
            .content_type(ContentType::plaintext())
            .body(self.0.text())
    }
}
