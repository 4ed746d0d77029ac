//! Many at once, on few connections.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::{spawn, time::timeout};

use super::{Library, PATIENT, body, body::count_one, fresh_key, in_time, trial::Trial};

promises! {
    everywhere:
        a_counter_is_exact_on_pools_of_one_and_two_and_eight,
        those_who_leave_midway_are_in_nobodys_way_on_pools_of_one_and_two;
    directly:
}

const TASKS: u32 = 8;
const ROUNDS: u32 = 12;

/// Counts with eight tasks; how many were told of success. If they are impatient, half of them leave midway.
async fn crowd(trial: &Trial, pools: &[Arc<dyn Library>], table: &str, impatient: bool) -> i64 {
    let key = fresh_key();
    let counts = table.to_owned();
    let counts = body(async move |tx| count_one(tx, &counts).await);
    let tasks = (0..TASKS).map(|task| {
        let pool = Arc::clone(&pools[task as usize % pools.len()]);
        let counts = counts.clone();
        spawn(async move {
            let mut told = 0;
            for round in 0..ROUNDS {
                let counted = pool.locked(key.into(), PATIENT, counts.clone());
                if impatient && task % 2 == 1 {
                    // As good as any way to leave at different moments.
                    let patience = std::time::Duration::from_micros((300 * round).into());
                    let Ok(counted) = timeout(patience, counted).await else {
                        continue;
                    };
                    counted.unwrap();
                } else {
                    counted.await.unwrap();
                }
                told += 1;
            }
            told
        })
    });
    let told = in_time(join_all(tasks.collect::<Vec<_>>())).await.expect("it hangs");
    trial.becomes(key, (0, 0)).await;
    told.into_iter().map(Result::unwrap).sum()
}

async fn a_counter_is_exact_on_pools_of_one_and_two_and_eight(trial: Arc<Trial>) {
    for size in [1, 2, 8] {
        let table = trial.counter().await;
        // As two instances of a service have them.
        let pools = [trial.pool(size), trial.pool(size)];
        let told = crowd(&trial, &pools, &table, false).await;
        assert_eq!((told, trial.count(&table).await), (i64::from(TASKS * ROUNDS), told));
    }
}

/// One that left while COMMIT was on its way may be stored.
async fn those_who_leave_midway_are_in_nobodys_way_on_pools_of_one_and_two(trial: Arc<Trial>) {
    for size in [1, 2] {
        let (library, table) = (trial.pool(size), trial.counter().await);
        let told = crowd(&trial, &[Arc::clone(&library)], &table, true).await;
        assert!(told >= i64::from(TASKS / 2 * ROUNDS));
        let counted = trial.count(&table).await;
        assert!(
            (told..=i64::from(TASKS * ROUNDS)).contains(&counted),
            "{told} {counted}"
        );
        if size == 1 {
            trial.is_clean(&*library).await;
        }
    }
}
