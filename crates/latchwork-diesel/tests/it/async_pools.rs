//! Locked transactions of a pool, for async code that may leave at any moment.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::mpsc,
    task::Poll,
    thread,
    time::Duration,
};

use diesel::{QueryableByName, RunQueryDsl as _, result::Error, sql_query, sql_types};
use latchwork_diesel::{LockedError, LockedPoolExt as _, XactLockError, XactOptions};
use tokio::task::spawn_blocking;

use crate::support::{
    CLUSTER, LONG, MOMENT, OnPg, PgPool, becomes, fresh_key, insert, is_clean, patient, pool, seen, stored, table,
    while_held,
};

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = sql_types::Integer)]
    number: i32,
}

/// Exact only if nobody else does it at the same time.
fn increment(conn: &mut impl OnPg, table: &str) -> Result<(), Error> {
    let Count { number } = sql_query(format!("SELECT number FROM {table}")).get_result(conn)?;
    thread::yield_now();
    sql_query(format!("UPDATE {table} SET number = {}", number + 1)).execute(conn)?;
    Ok(())
}

/// Waits on a thread of its own, so that what is awaited beside it goes on.
async fn beside<T: Send + 'static>(waits: impl FnOnce() -> T + Send + 'static) -> T {
    spawn_blocking(waits).await.unwrap()
}

/// The connection of a pool of one is back, and in order.
async fn is_back(pool: &PgPool) {
    let pool = pool.clone();
    beside(move || is_clean(&mut pool.get().unwrap())).await;
}

/// Has the future begin, and drops it when `until` is over.
async fn leaves(future: impl Future, until: impl FnOnce() + Send + 'static) {
    tokio::select! {
        biased;
        _ = future => panic!("it has ended"),
        () = beside(until) => {}
    }
}

#[tokio::test]
async fn it_commits_rolls_back_and_says_what_came_of_it() {
    let (pool, table, key) = (pool(&CLUSTER.url(), 1), table(), fresh_key());
    let inserts = |number| {
        let table = table.clone();
        move |conn: &mut _| insert(conn, &table, number)
    };
    let stores = pool.locked_transaction(key, patient(), inserts(1)).await;
    assert_eq!(stores.unwrap(), 1);
    assert_eq!(pool.try_locked_transaction(key, inserts(2)).await.unwrap(), Some(1));
    let fails = {
        let inserts = inserts(3);
        move |conn: &mut _| inserts(conn).and(Err::<(), _>(Error::NotFound))
    };
    let failed = pool.locked_transaction(key, patient(), fails).await.unwrap_err();
    assert!(matches!(failed, LockedError::Body(Error::NotFound)), "{failed:?}");
    let swallows = |conn: &mut _| {
        drop(diesel::connection::SimpleConnection::batch_execute(
            conn,
            "SELECT 1 / 0",
        ));
        Ok::<_, Error>(())
    };
    let aborted = pool.try_locked_transaction(key, swallows).await.unwrap_err();
    assert!(matches!(aborted, LockedError::Aborted(_)), "{aborted:?}");
    is_back(&pool).await;
    assert_eq!(stored(&table), [0, 1, 2]);
}

#[tokio::test]
async fn a_panic_of_the_body_goes_on_and_stores_nothing() {
    let (pool, table, key) = (pool(&CLUSTER.url(), 1), table(), fresh_key());
    let panics = {
        let (pool, table) = (pool.clone(), table.clone());
        tokio::spawn(async move {
            let body = move |conn: &mut _| {
                insert(conn, &table, 1).unwrap();
                panic!("of the body") as Result<(), ()>
            };
            pool.locked_transaction(key, patient(), body).await
        })
    };
    assert!(panics.await.unwrap_err().is_panic());
    is_back(&pool).await;
    assert_eq!(stored(&table), [0]);
}

#[tokio::test]
async fn a_key_that_others_have_is_none_or_timed_out() {
    let (pool, key) = (pool(&CLUSTER.url(), 1), fresh_key());
    let body = |_: &mut _| -> Result<(), ()> { unreachable!() };
    let (tries, waits) = (
        pool.try_locked_transaction(key, body),
        pool.locked_transaction(key, XactOptions::within(MOMENT), body),
    );
    let (held, ends) = mpsc::channel();
    let holder = spawn_blocking(move || while_held(key, || ends.recv().unwrap()));
    beside(move || becomes(&CLUSTER, key, (1, 0))).await;
    assert!(tries.await.unwrap().is_none());
    assert!(waits.await.unwrap_err().is_timeout());
    held.send(()).unwrap();
    holder.await.unwrap();
    is_back(&pool).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_is_exact_with_pools_of_one_and_two() {
    for size in [1, 2] {
        let (table, key, pool) = (table(), fresh_key(), pool(&CLUSTER.url(), size));
        let mut adds = tokio::task::JoinSet::new();
        for _ in 0..60 {
            let (pool, table) = (pool.clone(), table.clone());
            adds.spawn(async move {
                let add = move |conn: &mut _| increment(conn, &table);
                pool.locked_transaction(key, patient(), add).await.unwrap();
            });
        }
        adds.join_all().await;
        assert_eq!(stored(&table), [60]);
    }
}

/// What waits for the pool's only connection never asks for the lock.
#[tokio::test]
async fn one_who_leaves_while_it_waits_for_a_connection_never_runs() {
    let (pool, key) = (pool(&CLUSTER.url(), 1), fresh_key());
    let taken = beside({
        let pool = pool.clone();
        move || pool.get().unwrap()
    })
    .await;
    let (runs, ran) = mpsc::channel();
    let body = move |_: &mut _| runs.send(()).map_err(drop);
    let mut waits = Box::pin(pool.locked_transaction(key, patient(), body));
    poll_once(waits.as_mut()).await;
    drop(waits);
    drop(taken);
    // The sender goes with the body.
    beside(move || ran.recv_timeout(LONG).unwrap_err()).await;
    is_back(&pool).await;
}

async fn poll_once(mut future: std::pin::Pin<&mut impl Future>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn one_who_leaves_while_it_waits_for_the_lock_never_runs_and_gives_its_connection_back() {
    let (pool, key) = (pool(&CLUSTER.url(), 1), fresh_key());
    let (runs, ran) = mpsc::channel();
    let body = move |_: &mut _| runs.send(()).map_err(drop);
    // Longer than the test would last.
    let waits = pool.locked_transaction(key, XactOptions::within(100 * LONG), body);
    let (held, ends) = mpsc::channel();
    let holder = spawn_blocking(move || while_held(key, || ends.recv().unwrap()));
    beside(move || becomes(&CLUSTER, key, (1, 0))).await;
    leaves(waits, move || becomes(&CLUSTER, key, (1, 1))).await;
    // Others still have the lock.
    is_back(&pool).await;
    assert_eq!(seen(&CLUSTER, key), (1, 0));
    assert!(ran.recv().is_err());
    held.send(()).unwrap();
    holder.await.unwrap();
    becomes(&CLUSTER, key, (0, 0));
}

#[tokio::test]
async fn a_body_that_runs_goes_on_when_its_future_is_dropped_and_is_committed_or_rolled_back_as_it_says() {
    for says in [Ok(()), Err(Error::RollbackTransaction)] {
        let (pool, table, key) = (pool(&CLUSTER.url(), 1), table(), fresh_key());
        let is_stored = says.is_ok();
        let (goes_on, waits) = mpsc::channel();
        let body = {
            let table = table.clone();
            move |conn: &mut _| {
                insert(conn, &table, 1)?;
                waits.recv_timeout(LONG).unwrap();
                says
            }
        };
        let runs = pool.locked_transaction(key, patient(), body);
        leaves(runs, move || becomes(&CLUSTER, key, (1, 0))).await;
        assert_eq!((seen(&CLUSTER, key), stored(&table)), ((1, 0), vec![0]));
        goes_on.send(()).unwrap();
        is_back(&pool).await;
        assert_eq!(seen(&CLUSTER, key), (0, 0));
        assert_eq!(stored(&table), if is_stored { vec![0, 1] } else { vec![0] });
    }
}

/// At whichever moment: what is stored is stored as a whole, and neither a lock nor a connection stays away.
#[tokio::test(flavor = "multi_thread")]
async fn dropped_at_random_nothing_is_left_and_nothing_is_half_done() {
    let (pool, table, key) = (pool(&CLUSTER.url(), 2), table(), fresh_key());
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for number in 1..=200 {
        let table = table.clone();
        let body = move |conn: &mut _| {
            insert(conn, &table, number)?;
            thread::yield_now();
            insert(conn, &table, number)
        };
        let runs = pin!(pool.locked_transaction(key, patient(), body));
        // Not to wait for anything: a moment as good as any other.
        drop(tokio::time::timeout(Duration::from_micros(random.u64(0..3000)), runs).await);
    }
    let last = pool.locked_transaction(key, patient(), |_| Ok::<_, ()>(())).await;
    last.unwrap();
    beside(move || {
        becomes(&CLUSTER, key, (0, 0));
        let all = [(); 2].map(|()| pool.get().unwrap());
        for mut conn in all {
            is_clean(&mut conn);
        }
    })
    .await;
    let numbers = stored(&table);
    let (halves, rest) = numbers[1..].as_chunks::<2>();
    assert!(
        rest.is_empty() && halves.iter().all(|[one, other]| one == other),
        "{numbers:?}"
    );
}

#[tokio::test]
async fn a_pool_that_has_no_connection_in_time_begins_nothing() {
    let manager = diesel::r2d2::ConnectionManager::<diesel::PgConnection>::new("postgresql://nobody@127.0.0.1:1/none");
    let nowhere = diesel::r2d2::Pool::builder()
        .min_idle(Some(0))
        .connection_timeout(MOMENT);
    let nowhere = nowhere.build_unchecked(manager);
    let body = |_: &mut _| -> Result<(), ()> { unreachable!() };
    let error = nowhere
        .locked_transaction(fresh_key(), patient(), body)
        .await
        .unwrap_err();
    assert!(matches!(error, LockedError::Begin(_)), "{error:?}");
    let error = nowhere.try_locked_transaction(fresh_key(), body).await.unwrap_err();
    assert!(
        !matches!(error, LockedError::Lock(XactLockError::TimedOut { .. })),
        "{error:?}"
    );
}
