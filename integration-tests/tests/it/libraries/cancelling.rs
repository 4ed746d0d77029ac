//! Futures that are dropped at every place where they wait.

use std::{
    future::{Future, pending, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    thread,
};

use futures_util::future::join_all;
use latchwork_core::{Mode, fence::Fence, xact::FencedLimits};
use tokio::{runtime::Builder, task::spawn_blocking};

use super::{
    Body, CLUSTER, Failure, LONG, Library, PATIENT, body, body::count_one, fences::grant, fresh_key, idle, in_time,
    never, trial::Trial,
};

promises! {
    of futures, everywhere:
        nothing_is_left_wherever_it_is_dropped,
        in_a_queue_nothing_is_left_after_the_slice_wherever_it_is_dropped,
        a_wait_that_is_dropped_anywhere_leaves_its_transaction_usable,
        a_commit_whose_caller_leaves_ends_all_the_same,
        a_statement_of_a_body_that_was_dropped_does_not_hold_the_lock,
        nor_does_it_where_times_are_written_in_another_way,
        a_statement_that_a_body_has_dropped_does_not_hold_the_lock;
    directly:
        of_a_fenced_transaction_nothing_is_left_wherever_it_is_dropped,
        what_is_dropped_outside_of_a_runtime_is_rolled_back,
        what_was_begun_on_a_runtime_that_has_ended_is_not_handed_out_again
}

/// More than any of them needs, on a machine that wakes for everything by itself.
const MOST: usize = 400;

/// When a future is dropped after its last poll.
#[derive(Clone, Copy, Debug)]
enum Drops {
    /// What it has sent has no answer yet.
    AtOnce,
    /// There is an answer, which it has not seen.
    WhenWoken,
}

/// Polls a future so many times and drops it; what it has ended with by then.
async fn polled<T>(times: usize, drops: Drops, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if left == 0 && matches!(drops, Drops::AtOnce) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn nothing_is_left_wherever_it_is_dropped(trial: Arc<Trial>) {
    let (key, table) = (fresh_key(), trial.counter().await);
    // Cold, so that connecting is among it; then with its connection there.
    for (is_warm, drops) in [(false, Drops::AtOnce), (true, Drops::AtOnce), (true, Drops::WhenWoken)] {
        let mut done = None;
        for polls in 0..MOST {
            let library = trial.pool(1);
            if is_warm {
                library.alone("SELECT 1".to_owned()).await.unwrap();
            }
            let (before, counts) = (trial.count(&table).await, table.clone());
            let counts = body(async move |tx| count_one(tx, &counts).await);
            done = polled(polls, drops, library.locked(key.into(), PATIENT, counts)).await;
            trial.becomes(key, (0, 0)).await;
            trial.is_clean(&*library).await;
            if let Some(done) = &done {
                done.as_ref().unwrap();
                assert_eq!(trial.count(&table).await, before + 1, "it says that it is done");
                break;
            }
        }
        assert!(done.is_some(), "it takes more polls than that");
    }
}

async fn of_a_fenced_transaction_nothing_is_left_wherever_it_is_dropped(trial: Arc<Trial>) {
    let library = trial.pool(1);
    library.alone("SELECT 1".to_owned()).await.unwrap();
    let fence = Fence::fresh(fresh_key(), Mode::Exclusive);
    let _session = grant(&fence).await;
    let transactions = Fence::transactions_key(fence.key(), Mode::Exclusive);
    let mut done = None;
    for polls in 0..MOST {
        let work = library.fenced(fence, FencedLimits::default(), LONG, idle());
        done = polled(polls, Drops::WhenWoken, work).await;
        trial.becomes(transactions, (0, 0)).await;
        trial.is_clean(&*library).await;
        if done.is_some() {
            break;
        }
    }
    done.expect("it takes more polls than that").unwrap();
}

async fn in_a_queue_nothing_is_left_after_the_slice_wherever_it_is_dropped(trial: Arc<Trial>) {
    join_all((0..8).map(|polls| leaves_a_queue(&trial, polls))).await;
}

async fn leaves_a_queue(trial: &Trial, polls: usize) {
    let (library, key) = (trial.pool(1), fresh_key());
    let holder = trial.holder(key).await;
    library.alone("SELECT 1".to_owned()).await.unwrap();
    for drops in [Drops::AtOnce, Drops::WhenWoken] {
        let waits = polled(polls, drops, library.locked(key.into(), PATIENT, never())).await;
        assert!(waits.is_none(), "{waits:?}");
        // While others have the key all the time.
        trial.becomes(key, (1, 0)).await;
        trial.is_clean(&*library).await;
        let tries = polled(polls, drops, library.tried(key.into(), never())).await;
        assert!(matches!(tries, None | Some(Ok(false))), "{tries:?}");
        trial.is_clean(&*library).await;
    }
    holder.end().await;
    trial.is_clean(&*library).await;
}

async fn a_wait_that_is_dropped_anywhere_leaves_its_transaction_usable(trial: Arc<Trial>) {
    join_all((0..6).map(|polls| leaves_a_wait(&trial, polls))).await;
}

/// Polled up to its grant, and dropped at each place before.
async fn leaves_a_wait(trial: &Arc<Trial>, polls: usize) {
    let (library, key, free) = (trial.pool(1), fresh_key(), fresh_key());
    let (holder, sees) = (trial.holder(key).await, Arc::clone(trial));
    let leaves = body(async move |tx| {
        let wait = tx.lock(key.into(), PATIENT);
        assert!(polled(polls, Drops::AtOnce, wait).await.is_none());
        tx.lock(free.into(), PATIENT).await?;
        assert_eq!((sees.seen(key).await, sees.seen(free).await), ((1, 0), (1, 0)));
        Ok(())
    });
    library.plain(leaves).await.unwrap();
    holder.end().await;
    trial.is_clean(&*library).await;
}

async fn a_commit_whose_caller_leaves_ends_all_the_same(trial: Arc<Trial>) {
    let (library, key, blocker) = (trial.pool(1), fresh_key(), fresh_key());
    let table = trial.counter_that_commits_under(blocker).await;
    let holder = trial.holder(blocker).await;
    let counts = table.clone();
    let counts = body(async move |tx| count_one(tx, &counts).await);
    let left = tokio::select! {
        biased;
        ended = library.locked(key.into(), PATIENT, counts) => Some(ended),
        () = trial.becomes(blocker, (1, 1)) => None,
    };
    assert!(left.is_none(), "{left:?}");
    holder.end().await;
    trial.becomes(key, (0, 0)).await;
    trial.is_clean(&*library).await;
    // Whether it was in time to be committed is for nobody to know; it was one or the other.
    assert!([0, 1].contains(&trial.count(&table).await));
}

/// A statement that does not end, and the condition that it runs.
fn endless() -> (String, String) {
    let sleep = format!("SELECT pg_sleep(600) AS s{}", fastrand::u64(..));
    let runs = format!("EXISTS (SELECT FROM pg_stat_activity WHERE query = '{sleep}' AND state = 'active')");
    (sleep, runs)
}

/// What the server runs on for a caller who has left is ended, and its pool of one has room again.
async fn a_statement_of_a_body_that_was_dropped_does_not_hold_the_lock(trial: Arc<Trial>) {
    its_statement_does_not_hold_the_lock(&trial, trial.pool(1)).await;
}

/// IST is read as the time of another country than it was written for.
async fn nor_does_it_where_times_are_written_in_another_way(trial: Arc<Trial>) {
    let role = format!("elsewhere_{}", fastrand::u64(..));
    let made = format!(
        "CREATE ROLE {role} SUPERUSER LOGIN; ALTER ROLE {role} SET datestyle TO 'German'; \
         ALTER ROLE {role} SET timezone TO 'Asia/Kolkata'"
    );
    trial.server.value(&made).await;
    let library = trial.pool_of_one_at(CLUSTER.url_for(&role, "postgres"));
    its_statement_does_not_hold_the_lock(&trial, library).await;
}

async fn its_statement_does_not_hold_the_lock(trial: &Trial, library: Arc<dyn Library>) {
    let (key, (sleep, runs)) = (fresh_key(), endless());
    let sleeps = body(async move |tx| tx.run(&sleep).await);
    let left = tokio::select! {
        biased;
        ended = library.locked(key.into(), PATIENT, sleeps) => Some(ended),
        () = trial.comes_true(&runs) => None,
    };
    assert!(left.is_none(), "{left:?}");
    trial.becomes(key, (0, 0)).await;
    trial.comes_true(&format!("NOT {runs}")).await;
    trial.is_clean(&*library).await;
}

/// Nor does one that the body itself has given up.
async fn a_statement_that_a_body_has_dropped_does_not_hold_the_lock(trial: Arc<Trial>) {
    let (library, key, (sleep, runs)) = (trial.pool(1), fresh_key(), endless());
    let sees = Arc::clone(&trial);
    let leaves = body(async move |tx| {
        tokio::select! {
            biased;
            slept = tx.run(&sleep) => panic!("{slept:?}"),
            () = sees.comes_true(&runs) => Err(Failure::Whim("enough")),
        }
    });
    let ended = in_time(library.locked(key.into(), PATIENT, leaves)).await;
    let failure = ended.unwrap().unwrap_err().into_body();
    assert!(matches!(failure, Ok(Failure::Whim("enough"))), "{failure:?}");
    trial.becomes(key, (0, 0)).await;
    trial.is_clean(&*library).await;
}

/// A body that has counted, and does not end.
fn counts_for_ever(table: &str) -> Body {
    let table = table.to_owned();
    body(async move |tx| {
        count_one(tx, &table).await?;
        pending().await
    })
}

async fn what_is_dropped_outside_of_a_runtime_is_rolled_back(trial: Arc<Trial>) {
    let (library, key, table) = (trial.pool(1), fresh_key(), trial.counter().await);
    let mut work = library.locked(key.into(), PATIENT, counts_for_ever(&table));
    tokio::select! {
        biased;
        ended = &mut work => panic!("{ended:?}"),
        () = trial.becomes(key, (1, 0)) => {}
    }
    thread::spawn(move || drop(work)).join().unwrap();
    trial.becomes(key, (0, 0)).await;
    trial.is_clean(&*library).await;
    assert_eq!(trial.count(&table).await, 0);
}

/// Each worker of actix-web has a runtime of its own, and they end one by one.
async fn what_was_begun_on_a_runtime_that_has_ended_is_not_handed_out_again(trial: Arc<Trial>) {
    let (library, key, table) = (trial.pool(1), fresh_key(), trial.counter().await);
    let (theirs, counts, sees) = (Arc::clone(&library), counts_for_ever(&table), Arc::clone(&trial));
    let ends = move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let mut work = theirs.locked(key.into(), PATIENT, counts);
        runtime.block_on(async {
            tokio::select! {
                biased;
                ended = &mut work => panic!("{ended:?}"),
                () = sees.becomes(key, (1, 0)) => {}
            }
        });
        drop(runtime);
        drop(work);
    };
    spawn_blocking(|| thread::spawn(ends).join().unwrap()).await.unwrap();
    trial.becomes(key, (0, 0)).await;
    trial.is_clean(&*library).await;
    assert_eq!(trial.count(&table).await, 0);
}
