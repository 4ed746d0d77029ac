//! One service that takes payments, written once for each framework.

mod actix;
mod axum;

use std::sync::{Arc, atomic::AtomicUsize};

use deadpool_postgres::Pool;
use latchwork_core::Locks;
use latchwork_harness::http::Stage;
use latchwork_postgres::transaction::PooledTx;

pub(super) use self::{actix::Actix, axum::Axum};
use crate::http::servers::Served;

/// The most bytes of a body that the instance reads or keeps.
pub(super) const CAP: usize = 1000;

/// A framework, with the adapter for it.
pub(super) trait Server {
    /// Serves these routes, on a port of its own:
    ///
    /// | route | does |
    /// |---|---|
    /// | `POST /payments`, `POST /payments/{id}/refund` | stores a payment, and answers with the body |
    /// | `GET /payments` | passes |
    /// | `POST /slow` | stores a payment, and waits until the test lets it go |
    /// | `POST /leaves` | the same, and is cancelled when its client leaves |
    /// | `POST /fails` | stores a payment, and answers with 500 |
    /// | `POST /deferred` | stores what the server refuses at COMMIT |
    /// | `POST /large`, `POST /stream` | stores a payment, and answers with what is not kept |
    /// | `POST /mails` | works elsewhere; `bounces` is 502 |
    /// | `POST /slow-mails` | works elsewhere, waits, and is cancelled when its client leaves |
    /// | `POST /optional`, `GET /free` | pass without a key |
    fn serve(service: Service) -> Served;
}

/// What handlers need.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) pool: Pool,
    pub(super) locks: Locks,
    pub(super) stage: Stage,
    pub(super) mails: Arc<AtomicUsize>,
}

async fn insert(tx: &PooledTx) -> i64 {
    let row = tx
        .query_one("INSERT INTO payments DEFAULT VALUES RETURNING id", &[])
        .await;
    row.unwrap().get(0)
}
