//! Workers that do not read, or read late.

use std::time::Duration;

use super::{SETTLED, SHARDS, Worker, assert_fair, counts, pass};
use crate::{memory::MemoryServer, shards::ShardEvent, testing::Seed};

#[tokio::test(start_paused = true)]
async fn what_a_worker_has_not_fetched_is_anothers_when_that_one_comes() {
    let server = MemoryServer::new();
    let mut busy = Worker::join(&server);
    tokio::time::sleep(SETTLED).await;
    let mut workers = vec![Worker::join(&server)];
    pass(&mut workers, SETTLED).await;
    assert_eq!(counts(&workers), [5], "half of them, though nobody has read");
    // What it finds when it reads is its share, and no word of the rest.
    let mut events = 0;
    while let Ok(Some(event)) = tokio::time::timeout(Duration::ZERO, busy.shards.next()).await {
        let ShardEvent::Gained(shard) = event else {
            panic!("{event:?} was never gained")
        };
        assert!(shard.is_held() && !shard.is_revoked());
        busy.has.insert(shard.index(), shard);
        events += 1;
    }
    assert_eq!(events, 5);
    workers.push(busy);
    assert_fair(&workers);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_reads_keeps_no_more_words_than_it_has_shards() {
    let server = MemoryServer::new();
    let mut busy = Worker::join(&server);
    busy.shards.next().await.unwrap();
    for _ in 0..20 {
        tokio::time::sleep(SETTLED).await;
        server.end_sessions();
    }
    let mut events = 0;
    while tokio::time::timeout(Duration::ZERO, busy.shards.next()).await.is_ok() {
        events += 1;
    }
    assert!(events <= 2 * SHARDS, "{events}");
}

#[tokio::test(start_paused = true)]
async fn closing_the_locks_does_not_wait_for_who_does_not_read() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let mut shards = locks.shards("a", 2).unwrap().join();
    tokio::time::sleep(SETTLED).await;
    assert!(server.held() > 2);
    tokio::time::timeout(SETTLED, locks.close()).await.unwrap();
    assert_eq!(server.held(), 0);
    assert!(shards.next().await.is_none(), "neither gained nor lost");
}

#[tokio::test(start_paused = true)]
async fn readers_that_are_late_at_random_are_told_in_order_and_share_fairly_once_they_read() {
    for seed in Seed::row(20, 3) {
        let mut seed = Seed::new(seed);
        let server = MemoryServer::new();
        let mut workers: Vec<_> = (0..3).map(|_| Worker::join(&server)).collect();
        for _ in 0..200 {
            match seed.rng.u32(0..20) {
                0 => workers.push(Worker::join(&server)),
                1 if workers.len() > 1 => drop(workers.swap_remove(seed.rng.usize(0..workers.len()))),
                2 => server.end_sessions(),
                3..8 => {
                    let reads = seed.rng.usize(0..workers.len());
                    workers[reads].look().await;
                }
                // Work that ends by itself.
                8 => {
                    let worker = seed.rng.usize(0..workers.len());
                    let index = seed.rng.u32(0..SHARDS);
                    drop(workers[worker].has.remove(&index));
                }
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(seed.rng.u64(0..2_000))).await;
            let held = workers.iter().flat_map(|worker| worker.has.values());
            let mut held: Vec<u32> = held
                .filter(|shard| shard.is_held())
                .map(|shard| shard.index())
                .collect();
            let all = held.len();
            held.sort_unstable();
            held.dedup();
            assert_eq!(held.len(), all, "a shard is held twice");
        }
        pass(&mut workers, 3 * SETTLED).await;
        assert_fair(&workers);
        seed.note(|| "calm".to_owned());
    }
}
