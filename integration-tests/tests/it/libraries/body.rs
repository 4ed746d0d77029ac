//! What is done in a transaction, whichever library's it is.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
};

use latchwork_core::{
    Key, Mode,
    xact::{KeySet, TransactionBody, XactLockError, XactOptions},
};

/// Something that uses a transaction.
pub(super) type Doing<'t> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 't>>;
/// A lock on its way.
pub(super) type Locking<'t, T> = Pin<Box<dyn Future<Output = Result<T, XactLockError>> + Send + 't>>;

/// What a body has of its transaction.
///
/// It reads nothing: that a condition holds is asked by [`holds`], and what is stored is seen from outside.
pub(super) trait Tx: Send {
    /// Runs simple queries.
    fn run<'t>(&'t mut self, sql: &'t str) -> Doing<'t>;

    fn lock(&mut self, keys: KeySet, options: XactOptions) -> Locking<'_, ()>;

    /// Locks on a snapshot that is older than the lock too.
    fn lock_anyway(&mut self, key: Key) -> Locking<'_, ()>;

    fn try_lock(&mut self, keys: KeySet, mode: Mode) -> Locking<'_, bool>;

    /// Runs a body in a nested transaction of the library's, or under a savepoint if it has none; it is released if the
    /// body says Ok.
    fn nested(&mut self, body: Body) -> Doing<'_>;
}

/// Fails unless a condition holds in the transaction.
pub(super) async fn holds(tx: &mut dyn Tx, condition: &str) -> Result<(), Failure> {
    let sql = format!("SELECT 1 / ({condition})::int");
    tx.run(&sql).await
}

/// Reads, gives others time to read the same, and writes.
pub(super) async fn count_one(tx: &mut dyn Tx, table: &str) -> Result<(), Failure> {
    let step = format!(
        "DO $$ DECLARE was int := (SELECT n FROM {table}); BEGIN PERFORM pg_sleep(0.0001); \
         UPDATE {table} SET n = was + 1; END $$"
    );
    tx.run(&step).await
}

/// Runs in a transaction, and in another one when it is run again.
#[derive(Clone)]
pub(super) struct Body(Arc<Runs>);

type Runs = dyn for<'t> Fn(&'t mut (dyn Tx + 't)) -> Doing<'t> + Send + Sync;

impl Body {
    pub(super) fn run<'t>(&self, tx: &'t mut (dyn Tx + 't)) -> Doing<'t> {
        (self.0)(tx)
    }
}

pub(super) fn body<F>(body: F) -> Body
where
    F: for<'t> TransactionBody<&'t mut (dyn Tx + 't), (), Failure> + Clone + Sync + 'static,
{
    Body(Arc::new(move |tx| Box::pin(body.clone()(tx))))
}

/// What is done once, without the transaction.
pub(super) fn work(work: impl Future<Output = ()> + Send + 'static) -> Body {
    let work: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(work);
    let work = Arc::new(Mutex::new(Some(work)));
    body(async move |_| {
        let work = work.lock().unwrap().take();
        work.expect("it is done once").await;
        Ok(())
    })
}

/// What a body fails with, as an application has it: what was wrong is in the chain, and not the first in it.
#[derive(Debug)]
pub(super) enum Failure {
    Library(Box<dyn Error + Send + Sync>),
    Lock(XactLockError),
    /// The body's own.
    Whim(&'static str),
}

impl Failure {
    pub(super) fn library(error: impl Error + Send + Sync + 'static) -> Self {
        Self::Library(error.into())
    }
}

impl From<XactLockError> for Failure {
    fn from(error: XactLockError) -> Self {
        Self::Lock(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body failed")
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Library(error) => Some(&**error),
            Self::Lock(error) => Some(error),
            Self::Whim(_) => None,
        }
    }
}
