//! Many at once, on few connections.

use diesel::{QueryResult, connection::CacheSize};
use diesel_async::{
    AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _,
    pooled_connection::{AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod},
};
use futures_util::FutureExt as _;
use latchwork_diesel_async::{LockedTransactionExt, XactLockExt as _};
use latchwork_harness::{PgBouncer, PoolMode, Proxy, wait_until};
use tokio::{task::spawn_blocking, time::timeout};

use crate::support::{
    Bb8, CLUSTER, Deadpool, LONG, MOMENT, TestPool, answers, becomes, count, count_one, counter, end, fresh_key,
    holder, patient, polled, pool, run,
};

const TASKS: usize = 8;
const ROUNDS: usize = 15;

/// Counts with eight tasks, every second of which drops some of what it does half-way; how many were told of success,
/// and how many may have succeeded without being told.
async fn crowd<P: TestPool>(pools: &[P], table: &str) -> (usize, usize)
where
    for<'p> &'p P: LockedTransactionExt,
{
    let key = fresh_key();
    let tasks = (0..TASKS).map(|task| {
        let (pool, table) = (pools[task % pools.len()].clone(), table.to_owned());
        async move {
            let (mut told, mut untold) = (0, 0);
            for round in 0..ROUNDS {
                let polls = if task % 2 == 0 { usize::MAX } else { round };
                let work = (&pool).locked_transaction(key, patient(), async |tx| count_one(tx, &table).await);
                match polled(polls, work).await {
                    Some(done) => {
                        done.unwrap();
                        told += 1;
                    }
                    None => untold += 1,
                }
            }
            (told, untold)
        }
    });
    let all = timeout(2 * LONG, futures_util::future::join_all(tasks)).await;
    let sum = all.expect("it hangs").into_iter();
    let sum = sum.fold((0, 0), |sum, (told, untold)| (sum.0 + told, sum.1 + untold));
    becomes(key, (0, 0)).await;
    sum
}

async fn is_enough<P: TestPool>()
where
    for<'p> &'p P: LockedTransactionExt,
{
    for size in [1, 2] {
        let (pool, table) = (P::of(&CLUSTER.url(), size), counter());
        let (told, untold) = crowd(std::slice::from_ref(&pool), &table).await;
        let counted: usize = count(&table).parse().unwrap();
        assert!(told >= TASKS / 2 * ROUNDS);
        // One that was dropped while COMMIT was on its way may be stored.
        assert!(
            (told..=told + untold).contains(&counted),
            "{counted} of {told} and {untold}"
        );
        assert!(pool.size() <= size as usize);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pools_of_one_and_two_connections_are_enough_for_lock_and_work() {
    is_enough::<Deadpool>().await;
    is_enough::<Bb8>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_eight_tasks_counts_exactly() {
    for size in [1, 2, 8] {
        let (pool, bb8) = (pool(&CLUSTER.url(), size), Bb8::of(&CLUSTER.url(), size));
        let (table, key) = (counter(), fresh_key());
        let tasks = (0..TASKS).map(|task| {
            let (pool, bb8, table) = (pool.clone(), bb8.clone(), table.clone());
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let body = async |tx: &mut AsyncPgConnection| count_one(tx, &table).await;
                    let done = if task % 2 == 0 {
                        pool.locked_transaction(key, patient(), body).await
                    } else {
                        bb8.locked_transaction(key, patient(), body).await
                    };
                    done.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            timeout(2 * LONG, task).await.expect("it hangs").unwrap();
        }
        assert_eq!(count(&table), (TASKS * ROUNDS).to_string());
    }
}

/// A pool for a pooler that keeps no prepared statements, with its connections made: diesel-async prepares statements
/// outside of transactions when it connects.
async fn behind(pooler: &PgBouncer, size: usize) -> Deadpool {
    let mut config = ManagerConfig::default();
    config.recycling_method = RecyclingMethod::Fast;
    config.custom_setup = Box::new(|url| {
        let url = url.to_owned();
        async move {
            let mut connection = AsyncPgConnection::establish(&url).await?;
            connection.set_prepared_statement_cache_size(CacheSize::Disabled);
            Ok(connection)
        }
        .boxed()
    });
    let manager = AsyncDieselConnectionManager::new_with_config(pooler.url(), config);
    let pool = Deadpool::builder(manager).max_size(size).build().unwrap();
    let mut made = Vec::new();
    for _ in 0..size {
        made.push(pool.get().await.unwrap());
    }
    drop(made);
    pool
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_through_a_pooler_in_transaction_mode() {
    let pooler = PgBouncer::builder(&CLUSTER, PoolMode::Transaction)
        .setting("default_pool_size", 2)
        .start()
        .unwrap();
    let pools = [behind(&pooler, 2).await, behind(&pooler, 4).await];
    let table = counter();
    let (told, untold) = crowd(&pools, &table).await;
    let counted: usize = count(&table).parse().unwrap();
    assert!(
        (told..=told + untold).contains(&counted),
        "{counted} of {told} and {untold}"
    );

    // What the caller begins himself, and a limit.
    let key = fresh_key();
    let first = holder(key).await;
    let mut mine = pools[0].get().await.unwrap();
    let mine = mine.transaction(async |tx| {
        let late = tx.xact_lock(key).within(MOMENT).await;
        assert!(late.unwrap_err().is_timeout());
        run(tx, format!("UPDATE {table} SET n = -1")).await
    });
    mine.await.unwrap();
    assert_eq!(count(&table), "-1");

    // A statement that was abandoned in a body is ended behind the pooler too.
    end(first).await;
    let one = behind(&pooler, 1).await;
    let sleep = format!("SELECT pg_sleep(600) AS s{}", fastrand::u64(..));
    let running = format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{sleep}' AND state = 'active'");
    let left = tokio::select! {
        biased;
        ended = one.locked_transaction(key, patient(), async |tx| run(tx, sleep.clone()).await) => Some(ended),
        () = answers(running, "1") => None,
    };
    assert!(left.is_none(), "{left:?}");
    becomes(key, (0, 0)).await;
    let again = one.locked_transaction(key, patient(), async |_| QueryResult::Ok(()));
    timeout(LONG, again).await.expect("a slot is stuck").unwrap();
}

/// BEGIN and the lock travel together, and COMMIT with the question whether there is something to commit: no more than
/// without a lock, once the connection knows the statement that reads the answer.
#[tokio::test]
async fn a_lock_costs_no_round_trip_of_its_own() {
    let proxy = Proxy::start(CLUSTER.endpoint()).unwrap();
    let (pool, table) = (pool(&proxy.url(), 1), counter());
    let work = format!("UPDATE {table} SET n = n + 1");
    let mut one = pool.get().await.unwrap();
    let trips = async |one: &mut AsyncPgConnection| {
        one.batch_execute("SELECT 1").await.unwrap();
        proxy.round_trips()
    };
    let locked = async |one: &mut AsyncPgConnection| {
        let work = async |tx: &mut AsyncPgConnection| run(tx, work.clone()).await;
        one.locked_transaction(fresh_key(), patient(), work).await.unwrap();
    };
    locked(&mut one).await;
    let start = trips(&mut one).await;
    one.transaction(async |tx| run(tx, work.clone()).await).await.unwrap();
    let plain = trips(&mut one).await;
    locked(&mut one).await;
    let ours = trips(&mut one).await;
    assert_eq!(ours - plain, plain - start);
    // In a transaction of one's own it is one, and one more for its first on a connection.
    let mut before = ours;
    for more in [2, 1] {
        let own = one.transaction(async |tx| {
            assert!(tx.try_xact_lock(fresh_key()).await.unwrap());
            run(tx, work.clone()).await
        });
        own.await.unwrap();
        let now = trips(&mut one).await;
        assert_eq!(now - before, plain - start + more);
        before = now;
    }
    drop(one);
    let is_back = spawn_blocking(move || wait_until(LONG, || pool.idle() == 1));
    assert!(is_back.await.unwrap());
}
