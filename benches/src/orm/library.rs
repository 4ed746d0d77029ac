use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use latchwork_core::{Key, xact::XactOptions};

use super::job::Job;
use crate::Failure;

/// One database library, with a pool of its own kind.
///
/// A pool gives a connection away without a look at it, where it can be told so: each such look would make the three
/// ways more alike.
pub(crate) trait Library: Send + Sync + Sized + 'static {
    /// As the figures have it.
    const NAME: &'static str;
    /// What share of the transactions with FOR UPDATE ours should do at least.
    const GOAL: f64;

    fn connect(url: &str, connections: u32) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Does one transaction, as a user of the library would write it.
    fn transact(&self, job: Job) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Does one transaction after the other until it is to stop, and says how many.
    fn work(self: Arc<Self>, job: Job, stop: Arc<AtomicBool>) -> impl Future<Output = Result<u64, Failure>> + Send {
        async move {
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                self.transact(job.clone()).await?;
                done += 1;
            }
            Ok(done)
        }
    }
}

/// The key of a row.
pub(crate) fn key(job: &Job) -> Key {
    Key::bigint(job.row)
}

/// No wait of a comparison runs out.
pub(crate) fn patient() -> XactOptions {
    XactOptions::within(Duration::from_secs(30))
}
