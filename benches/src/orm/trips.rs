//! How often the network is crossed, as a proxy counts it.

use std::{sync::Arc, time::Duration};

use latchwork_harness::{Cluster, Proxy};
use serde_json::json;
use tokio::{runtime::Builder, time::sleep};

use super::{
    job::{Job, Lock, Watch},
    library::Library,
};
use crate::{
    Failure,
    report::{Goal, Report},
};

/// Transactions before the count: statements are prepared in them.
const WARM_UP: u64 = 8;
/// Transactions that are counted.
const COUNTED: u64 = 32;

/// The round trips of a transaction.
#[derive(Clone, Copy, Debug, Default)]
struct Trips {
    /// Until its work begins.
    before: f64,
    /// From the end of its work until its pool has the connection back.
    after: f64,
}

pub(crate) fn count<L: Library>(cluster: &Cluster, report: &mut Report) -> Result<(), Failure> {
    let watch = Arc::new(Watch::new(Proxy::start(cluster.endpoint())?));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let counted = runtime.block_on(async {
        let library = L::connect(&watch.url(), 1).await?;
        let none = trips(&library, &watch, Lock::None).await?;
        let ours = trips(&library, &watch, Lock::Ours).await?;
        Ok::<_, Failure>((none, ours))
    });
    let (none, ours) = counted?;
    let (extra, probe) = (ours.before - none.before, ours.after - none.after);
    report.figure(&format!("{}.extra_round_trips", L::NAME), extra, Goal::AtMost(1.0));
    report.note(format!(
        "{:<14}round trips beside those of the work: {} and {} without a lock, {} and {} with ours; the question before \
         COMMIT costs {probe} more",
        L::NAME,
        none.before,
        none.after,
        ours.before,
        ours.after
    ));
    report.row(json!({
        "library": L::NAME,
        "none_round_trips": [none.before, none.after],
        "ours_round_trips": [ours.before, ours.after],
        "commit_probe_round_trips": probe,
    }));
    Ok(())
}

async fn trips<L: Library>(library: &L, watch: &Arc<Watch>, lock: Lock) -> Result<Trips, Failure> {
    let (mut before, mut after, mut last) = (0, 0, 0);
    for number in 0..WARM_UP + COUNTED {
        library.transact(Job::watched(lock, 1, Arc::clone(watch))).await?;
        sleep(GIVEN_BACK).await;
        let ((begins, ends), now) = (watch.of_the_last(), watch.now());
        if number >= WARM_UP {
            before += begins - last;
            after += now - ends;
        }
        last = now;
    }
    Ok(Trips {
        before: before as f64 / COUNTED as f64,
        after: after as f64 / COUNTED as f64,
    })
}

/// Some pools take a connection back in a task of their own, with a look at it.
const GIVEN_BACK: Duration = Duration::from_millis(5);
