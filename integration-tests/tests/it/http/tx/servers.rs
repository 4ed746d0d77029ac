//! One service whose requests have transactions, written once for each framework.

mod actix;
mod axum;
mod work;

use std::time::Duration;

use latchwork_harness::http::Stage;

use crate::http::{
    library::{Deadpool, Library},
    servers::Served,
};

/// A framework, and the library whose transactions its handlers are given.
pub(super) type Axum<L = Deadpool> = (axum::Axum, L);
pub(super) type Actix<L = Deadpool> = (actix::Actix, L);
pub(super) type ActixByDefault = (actix::ActixByDefault, Deadpool);

/// How long a patient request waits for its turn.
const PATIENT: Duration = Duration::from_secs(15);

/// How long a hurried one waits for the database, at each step.
const HURRIED: Duration = Duration::from_millis(300);

/// How long one of many waits for its turn.
const HASTY: Duration = Duration::from_millis(20);

/// A framework, with the adapter for it.
pub(super) trait Server {
    type Library: Library;

    /// Serves these routes, on a port of its own. All of them are `POST`, and all but those under `counter` store a
    /// charge:
    ///
    /// | route | under a lock on | and |
    /// |---|---|---|
    /// | `/orders/{id}/charge` | the order | waits until the test lets it go |
    /// | `/orders/{id}/complete` | the order | the same, whatever its client does |
    /// | `/orders/{id}/hurried` | the order | the same, with a database that has to be quick |
    /// | `/orders/{id}/asleep` | the order | sleeps in the server |
    /// | `/orders/{id}/lost` | the order | waits for the test, and for the end of its connection |
    /// | `/orders/{id}/spawned` | the order | leaves its transaction to a task, which waits for the test |
    /// | `/add`, `/joined/{id}` | the counter; also the order | adds one to what it has read |
    /// | `/status/{code}` | the route | answers with the status |
    /// | `/orphan` | the route | stores what fails at COMMIT |
    /// | `/swallowed`, `/savepoint` | the route | goes on after an error; undoes it |
    /// | `/ended/{how}` | the route | ends the transaction itself |
    /// | `/panics` | the route | panics |
    /// | `/by-turns`, `/overlap` | the route | has a middleware that works on the transaction before; also meanwhile |
    /// | `/random/{key}`, `/all-random/{key}` | the key | stores two rows; whatever its client does |
    /// | `/stays/{key}/{id}` | the key, and waits for it | stores two rows with this id |
    fn serve(service: Service<Self::Library>) -> Served;
}

/// What handlers need.
#[derive(Clone)]
pub(super) struct Service<L: Library> {
    pub(super) provider: L::Provider,
    pub(super) stage: Stage,
}
