//! Running it again after what the server calls a conflict.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use latchwork_core::{Key, xact::LockedError};
use tokio::sync::Barrier;

use super::{BRIEF, Body, Failure, PATIENT, body, body::count_one, fresh_key, in_time, trial::Trial};

promises! {
    everywhere:
        a_serialization_failure_in_the_body_is_run_again_and_stored_once,
        a_serialization_failure_in_commit_is_run_again,
        there_are_as_many_runs_as_allowed,
        nothing_else_is_run_again,
        a_deadlock_over_rows_is_run_again,
        a_deadlock_over_locks_that_bodies_take_is_run_again,
        a_deadlock_in_commit_is_run_again;
    directly:
}

const THREE: NonZeroU32 = NonZeroU32::new(3).unwrap();
const MANY: NonZeroU32 = NonZeroU32::new(20).unwrap();
const CONFLICT: &str = "DO $$ BEGIN RAISE serialization_failure; END $$";

async fn a_serialization_failure_in_the_body_is_run_again_and_stored_once(trial: Arc<Trial>) {
    let (library, table) = (trial.pool(1), trial.counter().await);
    for is_nested in [false, true] {
        let (runs, counts) = (Arc::new(AtomicU32::new(0)), table.clone());
        let counter = Arc::clone(&runs);
        let fails_twice = body(async move |tx| {
            count_one(tx, &counts).await?;
            match counter.fetch_add(1, Relaxed) {
                0 | 1 if is_nested => tx.nested(body(async |tx| tx.run(CONFLICT).await)).await,
                0 | 1 => tx.run(CONFLICT).await,
                _ => Ok(()),
            }
        });
        let done = library.retried(fresh_key().into(), PATIENT, THREE, fails_twice);
        done.await.unwrap();
        assert_eq!(runs.load(Relaxed), 3);
        trial.is_clean(&*library).await;
    }
    assert_eq!(trial.count(&table).await, 2);
}

async fn a_serialization_failure_in_commit_is_run_again(trial: Arc<Trial>) {
    // A sequence is not rolled back, so it counts the commits that were tried.
    let tries = format!("tries_{}", fastrand::u64(..));
    trial.server.value(&format!("CREATE SEQUENCE {tries}")).await;
    let fails_twice = format!("IF nextval('{tries}') < 3 THEN RAISE serialization_failure; END IF");
    let (library, table) = (trial.pool(1), trial.counter().await);
    trial.commits_with(&table, &fails_twice).await;
    let counts = table.clone();
    let counts = body(async move |tx| count_one(tx, &counts).await);
    // Two attempts are one too few.
    let two = NonZeroU32::new(2).unwrap();
    let failed = library.retried(fresh_key().into(), PATIENT, two, counts.clone()).await;
    assert!(matches!(failed, Err(LockedError::Aborted(_))), "{failed:?}");
    trial.server.value(&format!("SELECT setval('{tries}', 1, false)")).await;
    library
        .retried(fresh_key().into(), PATIENT, THREE, counts)
        .await
        .unwrap();
    let tried = trial.server.number(&format!("SELECT last_value FROM {tries}")).await;
    assert_eq!((tried, trial.count(&table).await), (3, 1));
    trial.is_clean(&*library).await;
}

/// A body that runs SQL, and how often it has.
fn counted(sql: &'static str) -> (Body, Arc<AtomicU32>) {
    let runs = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&runs);
    let counts = body(async move |tx| {
        counter.fetch_add(1, Relaxed);
        tx.run(sql).await
    });
    (counts, runs)
}

async fn there_are_as_many_runs_as_allowed(trial: Arc<Trial>) {
    let library = trial.pool(1);
    for allowed in [NonZeroU32::MIN, THREE] {
        let (conflicts, runs) = counted(CONFLICT);
        let failed = library.retried(fresh_key().into(), PATIENT, allowed, conflicts).await;
        assert!(
            matches!(failed, Err(LockedError::Body(Failure::Library(_)))),
            "{failed:?}"
        );
        assert_eq!(runs.load(Relaxed), allowed.get());
        trial.is_clean(&*library).await;
    }
}

async fn nothing_else_is_run_again(trial: Arc<Trial>) {
    let (library, key) = (trial.pool(1), fresh_key());
    for fails in ["SELECT 1/0", "DO $$ BEGIN RAISE unique_violation; END $$"] {
        let (fails, runs) = counted(fails);
        let failed = library.retried(key.into(), PATIENT, THREE, fails).await;
        assert!(matches!(failed, Err(LockedError::Body(_))), "{failed:?}");
        assert_eq!(runs.load(Relaxed), 1);
    }
    let holder = trial.holder(key).await;
    let late = library.retried(key.into(), BRIEF, THREE, super::never()).await;
    assert!(late.unwrap_err().is_timeout());
    holder.end().await;
    trial.is_clean(&*library).await;
}

/// Has two transactions at once do something first, and both of them have done it before they go on; how often they ran.
struct Crossing {
    both: Barrier,
    runs: AtomicU32,
}

impl Crossing {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            both: Barrier::new(2),
            runs: AtomicU32::new(0),
        })
    }

    /// Later runs do not wait for anybody.
    async fn has_begun(&self) {
        if self.runs.fetch_add(1, Relaxed) < 2 {
            self.both.wait().await;
        }
    }

    /// That one of them was a victim, or both: the server may find both guilty at once.
    fn assert_run_again(&self) {
        assert!(self.runs.load(Relaxed) >= 3);
    }
}

async fn both(trial: &Trial, keys: [Key; 2], bodies: [Body; 2]) {
    let library = trial.pool(2);
    let [one, two] = bodies;
    let (one, two) = tokio::join!(
        in_time(library.retried(keys[0].into(), PATIENT, MANY, one)),
        in_time(library.retried(keys[1].into(), PATIENT, MANY, two)),
    );
    one.unwrap().unwrap();
    two.unwrap().unwrap();
    for key in keys {
        trial.becomes(key, (0, 0)).await;
    }
}

/// The first run of each has one row, and wants the other's.
async fn a_deadlock_over_rows_is_run_again(trial: Arc<Trial>) {
    let (a, b, crossing) = (trial.counter().await, trial.counter().await, Crossing::new());
    let crosses = |mine: &str, other: &str| {
        let (mine, other, crossing) = (mine.to_owned(), other.to_owned(), Arc::clone(&crossing));
        body(async move |tx| {
            // In one statement, since the two have different locks.
            tx.run(&format!("UPDATE {mine} SET n = n + 1")).await?;
            crossing.has_begun().await;
            tx.run(&format!("UPDATE {other} SET n = n + 1")).await
        })
    };
    both(&trial, [fresh_key(), fresh_key()], [crosses(&a, &b), crosses(&b, &a)]).await;
    crossing.assert_run_again();
    assert_eq!((trial.count(&a).await, trial.count(&b).await), (2, 2));
}

async fn a_deadlock_over_locks_that_bodies_take_is_run_again(trial: Arc<Trial>) {
    let (a, b, crossing) = (fresh_key(), fresh_key(), Crossing::new());
    let crosses = |other: Key| {
        let crossing = Arc::clone(&crossing);
        body(async move |tx| {
            crossing.has_begun().await;
            Ok(tx.lock(other.into(), PATIENT).await?)
        })
    };
    both(&trial, [a, b], [crosses(b), crosses(a)]).await;
    crossing.assert_run_again();
}

/// COMMIT checks rows that others have, and finds what a body with such an error would have found.
async fn a_deadlock_in_commit_is_run_again(trial: Arc<Trial>) {
    let (a, b, crossing) = (trial.counter().await, trial.counter().await, Crossing::new());
    for (table, other) in [(&a, &b), (&b, &a)] {
        let checks = format!("PERFORM n FROM {other} FOR UPDATE");
        trial.commits_with(table, &checks).await;
    }
    let crosses = |table: &str| {
        let (table, crossing) = (table.to_owned(), Arc::clone(&crossing));
        body(async move |tx| {
            count_one(tx, &table).await?;
            crossing.has_begun().await;
            Ok(())
        })
    };
    both(&trial, [fresh_key(), fresh_key()], [crosses(&a), crosses(&b)]).await;
    crossing.assert_run_again();
    assert_eq!((trial.count(&a).await, trial.count(&b).await), (1, 1));
}
