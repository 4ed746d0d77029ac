//! The transactions of every database library, by one text: what one locks is locked for all others, and each of them
//! keeps the same promises.
//!
//! A library that is added needs a module that implements [`Library`], and a line in [`LIBRARIES`].

/// Writes a test for each promise, and for [`poolers`] the list of those that hold through a pooler too. `of futures` are
/// those that a library which blocks its thread has no use for.
macro_rules! promises {
    (everywhere: $($everywhere:ident),*; directly: $($directly:ident),*) => {
        promises!(@write all, [$($everywhere,)*], [$($everywhere,)* $($directly,)*]);
    };
    (of futures, everywhere: $($everywhere:ident),*; directly: $($directly:ident),*) => {
        promises!(@write of_futures, [$($everywhere,)*], [$($everywhere,)* $($directly,)*]);
    };
    (@write $of:ident, [$($everywhere:ident,)*], [$($promise:ident,)*]) => {
        pub(super) const PROMISES: &[crate::libraries::trial::Promise] =
            &[$(|trial| Box::pin(trial.$of($everywhere))),*];

        mod every_library {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                let ground = crate::libraries::trial::Ground::direct();
                ground.tries(|trial| Box::pin(trial.$of(super::$promise))).await;
            })*
        }
    };
}

/// Writes the methods of [`Tx`] that lock; `$ends` makes a future of what a wait is in the library.
macro_rules! takes_locks {
    ($ends:path) => {
        fn lock(&mut self, keys: KeySet, options: XactOptions) -> Locking<'_, ()> {
            let lock = match options.mode() {
                Mode::Shared => self.0.xact_lock_shared(keys),
                _ => self.0.xact_lock(keys),
            };
            match options.limit() {
                Some(limit) => $ends(lock.within(limit)),
                None => $ends(lock.without_limit()),
            }
        }

        fn lock_anyway(&mut self, key: Key) -> Locking<'_, ()> {
            $ends(self.0.xact_lock(key).allow_stale_snapshot().within(LONG))
        }

        fn try_lock(&mut self, keys: KeySet, mode: Mode) -> Locking<'_, bool> {
            match mode {
                Mode::Shared => $ends(self.0.try_xact_lock_shared(keys)),
                _ => $ends(self.0.try_xact_lock(keys)),
            }
        }
    };
}

mod bodies;
mod body;
mod cancelling;
mod deadpool;
mod diesel;
mod diesel_async;
mod exclusion;
mod fences;
mod isolation;
mod limits;
mod locks;
mod losses;
mod mixed;
mod poolers;
mod pools;
mod retries;
mod savepoints;
mod sea_orm;
mod servers;
mod sessions;
mod sqlx;
mod trial;

use std::{
    fmt,
    future::Future,
    num::NonZeroU32,
    pin::Pin,
    sync::{Arc, LazyLock},
    time::Duration,
};

use latchwork_core::{
    Key,
    fence::Fence,
    xact::{FencedLimits, KeySet, LockedError, XactOptions},
};
use latchwork_harness::Cluster;
use tokio::{
    spawn,
    sync::oneshot,
    task::JoinHandle,
    time::{error::Elapsed, sleep, timeout},
};

use self::body::{Body, Doing, Failure, Locking, Tx, body, work};
use crate::onlooker::{Onlooker, SOON};

static CLUSTER: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::builder().setting("max_connections", 300).start().unwrap());

const MOMENT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(60);
const AT_ONCE: XactOptions = XactOptions::within(Duration::ZERO);
const BRIEF: XactOptions = XactOptions::within(MOMENT);
const PATIENT: XactOptions = XactOptions::within(LONG);

/// Connected to a database by one library.
trait Library: fmt::Debug + Send + Sync {
    /// Runs the body in a transaction that has its locks.
    fn locked(&self, keys: KeySet, options: XactOptions, body: Body) -> Ending<()>;

    /// Runs the body in a transaction that has its locks, if all are free at once, and says whether.
    fn tried(&self, keys: KeySet, body: Body) -> Ending<bool>;

    /// As [`locked`](Self::locked), again after a conflict.
    fn retried(&self, keys: KeySet, options: XactOptions, attempts: NonZeroU32, body: Body) -> Ending<()>;

    /// Runs the body in a transaction that has proved the fence.
    fn fenced(&self, fence: Fence, limits: FencedLimits, limit: Duration, body: Body) -> Ending<()>;

    /// Runs the body in a transaction that the library begins and ends as it does without us.
    fn plain(&self, body: Body) -> Doing<'static>;

    /// Runs SQL on a connection, outside of any transaction.
    fn alone(&self, sql: String) -> Doing<'static>;

    /// Asks for a lock outside of any transaction; `None` if the library's types do not let anybody.
    fn lock_alone(&self, key: Key) -> Option<Locking<'static, ()>>;

    /// Whether it blocks its thread, so that there is no future that somebody could drop midway.
    fn blocks(&self) -> bool {
        false
    }
}

/// A locked transaction on its way.
type Ending<T> = Pin<Box<dyn Future<Output = Result<T, LockedError<Failure>>> + Send>>;

/// How a server is reached.
#[derive(Clone, Debug)]
struct Way {
    url: String,
    /// Whether what is prepared stays so; not behind a pooler.
    prepares: bool,
}

/// Connects a library, with at most so many connections.
type Connect = fn(&Way, u32) -> Arc<dyn Library>;

const LIBRARIES: [(&str, Connect); 6] = [
    ("deadpool", |way, size| Arc::new(deadpool::Deadpool::connect(way, size))),
    ("diesel", |way, size| Arc::new(diesel::Diesel::connect(way, size))),
    ("diesel-async, deadpool", |way, size| {
        Arc::new(diesel_async::OnDeadpool::connect(way, size))
    }),
    ("diesel-async, bb8", |way, size| {
        Arc::new(diesel_async::OnBb8::connect(way, size))
    }),
    ("SeaORM", |way, size| Arc::new(sea_orm::SeaOrm::connect(way, size))),
    ("sqlx", |way, size| Arc::new(sqlx::Sqlx::connect(way, size))),
];

/// Every library, connected to the database, with as many connections as it is asked for at once.
fn every(url: &str) -> Vec<&'static dyn Library> {
    let way = Way {
        url: url.to_owned(),
        prepares: true,
    };
    // A test is a process of its own, so there is nobody to give them back to.
    let kept = LIBRARIES.map(|(_, connect)| &**Box::leak(Box::new(connect(&way, 16))));
    kept.to_vec()
}

/// Each library with each, itself included: it is two of its connections then.
fn pairs(url: &str) -> Vec<(&'static dyn Library, &'static dyn Library)> {
    let every = every(url);
    every
        .iter()
        .flat_map(|one| every.iter().map(|other| (*one, *other)))
        .collect()
}

/// A transaction that has its locks until it is told to end.
#[must_use]
struct Holding {
    tell: oneshot::Sender<()>,
    ending: JoinHandle<Result<(), LockedError<Failure>>>,
}

impl Holding {
    /// Returns when the locks are there.
    async fn begin(library: &dyn Library, keys: impl Into<KeySet>, options: XactOptions) -> Self {
        let (tell, told) = oneshot::channel();
        let (begun, has_begun) = oneshot::channel();
        let holds = work(async move {
            begun.send(()).unwrap();
            told.await.unwrap();
        });
        let ending = spawn(library.locked(keys.into(), options, holds));
        in_time(has_begun).await.unwrap().unwrap();
        Self { tell, ending }
    }

    async fn end(self) {
        self.tell.send(()).unwrap();
        in_time(self.ending).await.unwrap().unwrap().unwrap();
    }
}

fn idle() -> Body {
    body(async |_| Ok(()))
}

fn never() -> Body {
    body(async |_| panic!("the body runs"))
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

/// How many sessions have the key, and how many wait for it, as the server sees it.
async fn seen(onlooker: &Onlooker, key: Key) -> (u32, u32) {
    let sql = format!(
        "SELECT concat(count(*) FILTER (WHERE granted), ' ', count(*) FILTER (WHERE NOT granted)) FROM pg_locks \
         WHERE locktype = 'advisory' AND classid = {} AND objid = {} AND objsubid = {}",
        key.classid(),
        key.objid(),
        key.objsubid()
    );
    let counts = onlooker.value(&sql).await;
    let (granted, waiting) = counts.split_once(' ').unwrap();
    (granted.parse().unwrap(), waiting.parse().unwrap())
}

/// Waits until so many sessions have the key, and so many wait for it.
async fn becomes(onlooker: &Onlooker, key: Key, expected: (u32, u32)) {
    let reached = async {
        while seen(onlooker, key).await != expected {
            sleep(GLANCE).await;
        }
    };
    if timeout(SOON, reached).await.is_err() {
        panic!("{expected:?} on key {key}, not {:?}", seen(onlooker, key).await);
    }
}

/// Between two looks at the server.
const GLANCE: Duration = Duration::from_millis(2);
