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
}

impl ShopError {
    /// The status and the text of the answer. The cause goes to the log: it is for those who run the shop.
    #[must_use]
    pub fn answer(&self) -> (u16, String) {
        let status = match self {
            Self::Body(error) => return (400, format!("{self}: {error}\n")),
            Self::Pool(_) | Self::Slot(_) | Self::NoSlot => 503,
            Self::Statement(_) => 500,
        };
        tracing::error!("{}", chain(self));
        (status, format!("{self}\n"))
    }
}
