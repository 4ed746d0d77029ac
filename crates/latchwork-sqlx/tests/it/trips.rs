//! Many at once, on few connections.

use latchwork_harness::{PgBouncer, PoolMode, Proxy, wait_until};
use latchwork_sqlx::{LockedTransactionExt as _, XactLockExt as _};
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::{task::spawn_blocking, time::timeout};

use crate::support::{
    CLUSTER, LONG, MOMENT, answers, becomes, connection, count, count_one, counter, fresh_key, holder, is_clean,
    patient, polled, pool, run,
};

const TASKS: usize = 8;
const ROUNDS: usize = 15;

/// Counts with eight tasks, every second of which drops some of what it does half-way; how many were told of success,
/// and how many may have succeeded without being told.
async fn crowd(pools: &[PgPool], table: &str) -> (usize, usize) {
    let key = fresh_key();
    let tasks = (0..TASKS).map(|task| {
        let (pool, table) = (pools[task % pools.len()].clone(), table.to_owned());
        tokio::spawn(async move {
            let (mut told, mut untold) = (0, 0);
            for round in 0..ROUNDS {
                let polls = if task % 2 == 0 { usize::MAX } else { round };
                let work = pool.locked_transaction(key, patient(), async |tx| count_one(tx, &table).await);
                match polled(polls, work).await {
                    Some(done) => {
                        done.unwrap();
                        told += 1;
                    }
                    None => untold += 1,
                }
            }
            (told, untold)
        })
    });
    let mut sum = (0, 0);
    for task in tasks.collect::<Vec<_>>() {
        let (told, untold) = timeout(2 * LONG, task).await.expect("it hangs").unwrap();
        sum = (sum.0 + told, sum.1 + untold);
    }
    becomes(key, (0, 0)).await;
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_of_one_and_two_connections_are_enough_for_lock_and_work() {
    for size in [1, 2] {
        let (pool, table) = (pool(&CLUSTER.url(), size), counter());
        let (told, untold) = crowd(std::slice::from_ref(&pool), &table).await;
        let counted: usize = count(&table).parse().unwrap();
        assert!(told >= TASKS / 2 * ROUNDS);
        // One that was dropped while COMMIT was on its way may be stored.
        assert!(
            (told..=told + untold).contains(&counted),
            "{counted} of {told} and {untold}"
        );
        assert!(pool.size() <= size);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_eight_tasks_counts_exactly() {
    for size in [1, 2, 8] {
        let (pool, table, key) = (pool(&CLUSTER.url(), size), counter(), fresh_key());
        let tasks = (0..TASKS).map(|_| {
            let (pool, table) = (pool.clone(), table.clone());
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let work = pool.locked_transaction(key, patient(), async |tx| count_one(tx, &table).await);
                    work.await.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            timeout(2 * LONG, task).await.expect("it hangs").unwrap();
        }
        assert_eq!(count(&table), (TASKS * ROUNDS).to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_through_a_pooler_in_transaction_mode() {
    let pooler = PgBouncer::builder(&CLUSTER, PoolMode::Transaction)
        .setting("default_pool_size", 2)
        .start()
        .unwrap();
    // PgBouncer refuses what sqlx asks for by default, unless it is told to ignore it.
    let options: PgConnectOptions = pooler.url().parse().unwrap();
    let options = options.extra_float_digits(None);
    let pool = |size| {
        PgPoolOptions::new()
            .max_connections(size)
            .connect_lazy_with(options.clone())
    };
    let pools = [pool(2), pool(4)];
    let table = counter();
    let (told, untold) = crowd(&pools, &table).await;
    let counted: usize = count(&table).parse().unwrap();
    assert!(
        (told..=told + untold).contains(&counted),
        "{counted} of {told} and {untold}"
    );

    // What the caller begins himself, and a limit.
    let key = fresh_key();
    let mut other = connection().await;
    let first = holder(&mut other, key).await;
    let mut transaction = pools[0].begin().await.unwrap();
    assert!(
        transaction
            .xact_lock(key)
            .within(MOMENT)
            .await
            .unwrap_err()
            .is_timeout()
    );
    run(&mut transaction, format!("UPDATE {table} SET n = -1"))
        .await
        .unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(count(&table), "-1");

    // A statement that was abandoned in a body is ended behind the pooler too.
    first.rollback().await.unwrap();
    let one = pool(1);
    let sleep = format!("SELECT pg_sleep(600) AS s{}", fastrand::u64(..));
    let running = format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{sleep}' AND state = 'active'");
    let left = tokio::select! {
        biased;
        ended = one.locked_transaction(key, patient(), async |tx| run(tx, sleep.clone()).await) => Some(ended),
        () = answers(running, "1") => None,
    };
    assert!(left.is_none(), "{left:?}");
    becomes(key, (0, 0)).await;
    is_clean(&one).await;
}

/// One for the lock, which plain sqlx has not; what else there is to ask travels along.
#[tokio::test]
async fn a_lock_costs_one_round_trip() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let (pool, table) = (pool(&proxy.url(), 1), counter());
    let work = format!("UPDATE {table} SET n = n + 1");
    let trips = async || {
        let watched = pool.clone();
        let is_back = spawn_blocking(move || wait_until(LONG, || watched.num_idle() == 1));
        assert!(is_back.await.unwrap());
        proxy.round_trips()
    };
    drop(pool.acquire().await.unwrap());
    let start = trips().await;
    let mut plain = pool.begin().await.unwrap();
    run(&mut plain, work.clone()).await.unwrap();
    plain.commit().await.unwrap();
    let plain = trips().await;
    let locked = pool.locked_transaction(fresh_key(), patient(), async |tx| run(tx, work.clone()).await);
    locked.await.unwrap();
    assert_eq!(trips().await - plain, plain - start + 1);
}
