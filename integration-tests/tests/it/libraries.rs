//! The transactions of every database library on the same keys: what one locks is locked for all others.
//!
//! A library that is added needs a module that implements [`Library`], and a line in [`every`].

mod deadpool;
mod diesel;
mod diesel_async;
mod exclusion;
mod mixed;
mod sea_orm;
mod sessions;
mod sqlx;

use std::{convert::Infallible, fmt, future::Future, pin::Pin, sync::LazyLock, time::Duration};

use latchwork_core::{
    Key,
    xact::{KeySet, LockedError, XactOptions},
};
use latchwork_harness::Cluster;
use tokio::{
    spawn,
    sync::oneshot,
    task::JoinHandle,
    time::{error::Elapsed, timeout},
};

use crate::onlooker::{Onlooker, eventually};

static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::builder().setting("max_connections", 200).start().unwrap());

const LONG: Duration = Duration::from_secs(60);
const AT_ONCE: XactOptions = XactOptions::within(Duration::ZERO);
const PATIENT: XactOptions = XactOptions::within(LONG);

/// Connected to a database by one library, with as many connections as it is asked for at once.
trait Library: fmt::Debug + Send + Sync {
    /// Does the work in a transaction that has its locks.
    fn locked(&self, keys: KeySet, options: XactOptions, work: Work) -> Ending<()>;

    /// Does the work in a transaction that has its locks, if all are free at once, and says whether.
    fn tried(&self, keys: KeySet, work: Work) -> Ending<bool>;
}

/// Every library, connected to the database.
fn every(url: &str) -> Vec<&'static dyn Library> {
    vec![
        kept(deadpool::Deadpool::connect(url)),
        kept(diesel::Diesel::connect(url)),
        kept(diesel_async::DieselAsync::connect(url)),
        kept(sea_orm::SeaOrm::connect(url)),
        kept(sqlx::Sqlx::connect(url)),
    ]
}

/// A test is a process of its own, so there is nobody to give it back to.
fn kept(library: impl Library + 'static) -> &'static dyn Library {
    Box::leak(Box::new(library))
}

/// Each library with each, itself included: it is two of its connections then.
fn pairs(url: &str) -> Vec<(&'static dyn Library, &'static dyn Library)> {
    let every = every(url);
    every
        .iter()
        .flat_map(|one| every.iter().map(|other| (*one, *other)))
        .collect()
}

/// What is done under the locks; it does not use the transaction, and cannot fail.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
/// A locked transaction on its way.
type Ending<T> = Pin<Box<dyn Future<Output = Result<T, LockedError<Infallible>>> + Send>>;

/// A transaction that has its locks until it is told to end.
#[must_use]
struct Holding {
    tell: oneshot::Sender<()>,
    ending: JoinHandle<Result<(), LockedError<Infallible>>>,
}

impl Holding {
    /// Returns when the locks are there.
    async fn begin(library: &dyn Library, keys: impl Into<KeySet>, options: XactOptions) -> Self {
        let (tell, told) = oneshot::channel();
        let (begun, has_begun) = oneshot::channel();
        let work = Box::pin(async move {
            begun.send(()).unwrap();
            told.await.unwrap();
        });
        let ending = spawn(library.locked(keys.into(), options, work));
        in_time(has_begun).await.unwrap().unwrap();
        Self { tell, ending }
    }

    async fn end(self) {
        self.tell.send(()).unwrap();
        in_time(self.ending).await.unwrap().unwrap().unwrap();
    }
}

fn idle() -> Work {
    Box::pin(async {})
}

fn never() -> Work {
    Box::pin(async { panic!("others have the lock") })
}

async fn in_time<T>(future: impl Future<Output = T>) -> Result<T, Elapsed> {
    timeout(LONG, future).await
}

fn fresh_key() -> Key {
    Key::bigint(fastrand::i64(..))
}

/// That no transaction and no shared one can have a key.
async fn is_excluded(library: &dyn Library, key: Key, why: &str) {
    let tried = library.tried(key.into(), never()).await.unwrap();
    assert!(!tried, "{why}: {library:?} has it by a try");
    for options in [AT_ONCE, AT_ONCE.shared()] {
        let late = library.locked(key.into(), options.clone(), never()).await;
        let late = late.expect_err(why);
        assert!(late.is_timeout(), "{why}: {library:?} with {options:?} says {late:?}");
    }
}

/// Waits until so many sessions have the key, and so many wait for it, as the server sees it.
async fn becomes(onlooker: &Onlooker, key: Key, expected: (u32, u32)) {
    let sql = format!(
        "SELECT concat(count(*) FILTER (WHERE granted), ' ', count(*) FILTER (WHERE NOT granted)) FROM pg_locks \
         WHERE locktype = 'advisory' AND classid = {} AND objid = {} AND objsubid = {}",
        key.classid(),
        key.objid(),
        key.objsubid()
    );
    let (granted, waiting) = expected;
    let wanted = format!("{granted} {waiting}");
    let what = format!("{wanted} on key {key}");
    eventually(&what, async || onlooker.value(&sql).await == wanted).await;
}
