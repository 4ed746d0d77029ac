//! One service that takes payments, written once for each framework.

mod actix;
mod axum;

use std::{
    ops::DerefMut,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use latchwork_core::Locks;
use latchwork_harness::http::Stage;

use crate::http::{
    library::{Deadpool, Library, Tx},
    servers::Served,
};

/// A framework, and the library whose transactions its handlers are given.
pub(super) type Axum<L = Deadpool> = (axum::Axum, L);
pub(super) type Actix<L = Deadpool> = (actix::Actix, L);

/// The most bytes of a body that the instance reads or keeps.
pub(super) const CAP: usize = 1000;

/// How long a patient request waits for one that is being carried out.
const PATIENT: Duration = Duration::from_secs(15);

/// A framework, with the adapter for it.
pub(super) trait Server {
    type Library: Library;

    /// Serves these routes, on a port of its own:
    ///
    /// | route | does |
    /// |---|---|
    /// | `POST /payments`, `POST /payments/{id}/refund` | stores a payment, and answers with the body |
    /// | `GET /payments` | passes |
    /// | `POST /slow` | stores a payment, and waits until the test lets it go |
    /// | `POST /leaves` | the same, and is cancelled when its client leaves |
    /// | `POST /waits` | the same as `/slow`, and waits while another is at it |
    /// | `POST /patient` | the same as `/payments`, with a database that may be slow |
    /// | `POST /hasty` | stores a payment, and is cancelled when its client leaves |
    /// | `POST /panics` | stores a payment, and panics |
    /// | `POST /spawned` | stores a payment, and leaves its transaction to a task, which waits for the test |
    /// | `POST /fails` | stores a payment, and answers with 500 |
    /// | `POST /deferred` | stores what the server refuses at COMMIT |
    /// | `POST /large`, `POST /stream` | stores a payment, and answers with what is not kept |
    /// | `POST /mails` | works elsewhere; `bounces` is 502 |
    /// | `POST /slow-mails` | works elsewhere, waits, and is cancelled when its client leaves |
    /// | `POST /optional`, `GET /free` | pass without a key |
    fn serve(service: Service<Self::Library>) -> Served;
}

/// What handlers need.
#[derive(Clone)]
pub(super) struct Service<L: Library> {
    pub(super) provider: L::Provider,
    pub(super) locks: Locks,
    pub(super) stage: Stage,
    pub(super) mails: Arc<AtomicUsize>,
}

/// Leaves the transaction to a task, which ends when the test lets it.
async fn spawn<L: Library>(stage: Stage, mut tx: impl DerefMut<Target = Tx<L>> + Send + 'static) {
    insert::<L>(&mut tx).await;
    tokio::spawn(async move {
        stage.play().await;
        drop(tx);
    });
}

/// Stores a payment.
async fn insert<L: Library>(tx: &mut Tx<L>) -> i64 {
    let insert = "INSERT INTO payments DEFAULT VALUES RETURNING id AS n";
    L::number(tx, insert).await.unwrap()
}
