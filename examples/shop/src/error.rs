//! Why a handler could not answer.

use deadpool_postgres::PoolError;
use latchwork::Lost;

use crate::failure::chain;

/// What goes wrong in handlers. Refusals are the affair of latchwork, and do not come here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShopError {
    /// The client has sent something else than was expected.
    #[error("the body cannot be understood")]
    Body(#[from] serde_json::Error),
    /// The database cannot be reached, or all connections are in use.
    #[error("no connection to the database")]
    Pool(#[from] PoolError),
    /// A statement failed, or the connection has ended meanwhile.
    #[error("the database did not carry out a statement")]
    Statement(#[from] tokio_postgres::Error),
    /// The slot was lost while the model was at work.
    #[error("the slot was lost with its connection to the database")]
    Slot(#[from] Lost),
    /// The slot is gone already.
    #[error("there is no slot any more")]
    NoSlot,
    /// The client has asked for a failure.
    #[error("the payment failed, as was asked for")]
    AskedToFail,
}

impl ShopError {
    /// The status of the answer.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Body(_) => 400,
            Self::Pool(_) | Self::Slot(_) | Self::NoSlot => 503,
            Self::Statement(_) | Self::AskedToFail => 500,
        }
    }

    /// The text of the answer, which is plain. Of what is not the client's doing the cause goes to the log: it is for
    /// those who run the shop.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Body(error) => return format!("{self}: {error}\n"),
            Self::AskedToFail => {}
            Self::Pool(_) | Self::Statement(_) | Self::Slot(_) | Self::NoSlot => tracing::error!("{}", chain(self)),
        }
        format!("{self}\n")
    }
}
