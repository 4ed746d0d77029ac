//! All libraries at once.

use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use latchwork_core::Key;
use latchwork_harness::Cluster;
use tokio::{spawn, task::yield_now};

use super::{Body, Library, PATIENT, every, fresh_key, in_time, work};

const TASKS_OF_EACH: usize = 3;
const ROUNDS: usize = 15;

/// Things that one at a time may use.
struct Things {
    keys: [Key; 4],
    in_use: [AtomicBool; 4],
    uses: AtomicUsize,
}

impl Things {
    fn new() -> Self {
        Self {
            keys: array::from_fn(|_| fresh_key()),
            in_use: array::from_fn(|_| AtomicBool::new(false)),
            uses: AtomicUsize::new(0),
        }
    }

    /// Uses some of them while others would have the time to do the same.
    fn work(self: Arc<Self>, which: Vec<usize>) -> Body {
        work(async move {
            for thing in &which {
                let others = self.in_use[*thing].swap(true, SeqCst);
                assert!(!others, "two at once have the lock of {thing}");
            }
            yield_now().await;
            for thing in &which {
                self.in_use[*thing].store(false, SeqCst);
            }
            self.uses.fetch_add(1, SeqCst);
        })
    }
}

/// Uses two or three things at a time, whose keys are given in any order.
async fn works(library: &dyn Library, things: &Arc<Things>) {
    for round in 0..ROUNDS {
        let mut which: Vec<_> = (0..things.keys.len()).collect();
        fastrand::shuffle(&mut which);
        which.truncate(2 + round % 2);
        let keys: Vec<_> = which.iter().map(|thing| things.keys[*thing]).collect();
        let work = Arc::clone(things).work(which);
        let done = library.locked(keys.into(), PATIENT, work).await;
        assert!(done.is_ok(), "{library:?}: {done:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_keys_at_once_are_exclusive_and_run_into_no_deadlock_when_all_libraries_mix() {
    let cluster = Cluster::start().unwrap();
    let things = Arc::new(Things::new());
    let mut tasks = Vec::new();
    for library in every(&cluster.url()) {
        for _ in 0..TASKS_OF_EACH {
            let things = Arc::clone(&things);
            tasks.push(spawn(async move { works(library, &things).await }));
        }
    }
    let expected = tasks.len() * ROUNDS;
    for task in tasks {
        in_time(task).await.unwrap().unwrap();
    }
    assert_eq!(things.uses.load(SeqCst), expected);
    let log = cluster.log();
    assert!(!log.contains("deadlock"), "{log}");
}
