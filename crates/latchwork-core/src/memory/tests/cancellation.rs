use tokio::task::yield_now;

use super::{nothing_is_left, without_bound};
use crate::{
    Guard, Locks, Mode, WaitMethod,
    memory::MemoryServer,
    testing::{Polled, poll},
};

/// More polls than any acquire here can need.
const TOO_MANY: usize = 20;

/// Who stands in the way.
#[derive(Clone, Copy, Debug)]
enum Held {
    Nobody,
    /// By a guard of the same process: the wait is in the gate.
    Here,
    /// By another session: the wait is in the server's queue.
    Elsewhere,
    /// By another session, with one of this process in front.
    ElsewhereWithOneBefore,
}

impl Held {
    const ALL: [Self; 4] = [Self::Nobody, Self::Here, Self::Elsewhere, Self::ElsewhereWithOneBefore];

    async fn by(self, server: &MemoryServer, locks: &Locks) -> Option<Guard> {
        match self {
            Self::Nobody => None,
            Self::Here => locks.try_acquire("job").await.unwrap(),
            Self::Elsewhere | Self::ElsewhereWithOneBefore => server.locks().try_acquire("job").await.unwrap(),
        }
    }
}

/// Polls an acquire so many times, with the holder giving way before the last poll, and drops it. Says whether it was
/// done before.
async fn dropped_after(polls: usize, held: Held, mode: Mode, method: WaitMethod, gives_way: bool) -> bool {
    let server = MemoryServer::new();
    let locks = server.locks();
    let mut holder = held.by(&server, &locks).await;
    let before =
        matches!(held, Held::ElsewhereWithOneBefore).then(|| poll(locks.acquire("job").mode(mode).without_limit()));
    let mut acquire = Polled::new(locks.acquire("job").mode(mode).wait_by(method).without_limit());
    let mut done = false;
    for number in 0..polls {
        if gives_way && number + 1 == polls {
            holder = None;
        }
        if acquire.poll().is_ready() {
            done = true;
            break;
        }
        yield_now().await;
    }
    drop(acquire);
    drop(before);
    assert!(locks.stats().holders <= usize::from(holder.is_some()));
    drop(holder);
    yield_now().await;
    nothing_is_left(&server);
    assert_eq!((locks.stats().keys, locks.stats().holders), (0, 0));
    // Nor is the key spoilt.
    assert!(locks.try_acquire("job").await.unwrap().is_some());
    done
}

#[tokio::test]
async fn an_acquire_that_is_dropped_after_any_number_of_polls_leaves_nothing_held() {
    for held in Held::ALL {
        for mode in [Mode::Exclusive, Mode::Shared] {
            for method in [WaitMethod::Queue, WaitMethod::Poll] {
                for gives_way in [false, true] {
                    let mut completes = false;
                    for polls in 0..TOO_MANY {
                        completes |= dropped_after(polls, held, mode, method, gives_way).await;
                    }
                    let free =
                        matches!(held, Held::Nobody) || (gives_way && !matches!(held, Held::ElsewhereWithOneBefore));
                    let shared = gives_way && mode == Mode::Shared;
                    assert_eq!(completes, free || shared, "{held:?} {mode} {method:?} {gives_way}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_try_that_is_dropped_after_any_number_of_polls_leaves_nothing_held() {
    for polls in 0..3 {
        let server = MemoryServer::new();
        let locks = server.locks();
        let mut attempt = Polled::new(locks.try_acquire("job"));
        for _ in 0..polls {
            if attempt.poll().is_ready() {
                break;
            }
        }
        drop(attempt);
        nothing_is_left(&server);
    }
}

#[tokio::test]
async fn an_acquire_of_a_slot_that_is_dropped_after_any_number_of_polls_leaves_nothing_held() {
    for here in [true, false] {
        for gives_way in [true, false] {
            for polls in 0..TOO_MANY {
                let server = MemoryServer::new();
                let locks = without_bound(&server);
                let other = if here { locks.clone() } else { server.locks() };
                let pool = locks.slots("pool", 1).unwrap();
                let mut holder = other.slots("pool", 1).unwrap().try_acquire().await.unwrap();
                assert!(holder.is_some());
                let mut acquire = Polled::new(pool.acquire().without_limit());
                for number in 0..polls {
                    if gives_way && number + 1 == polls {
                        holder = None;
                    }
                    if acquire.poll().is_ready() {
                        break;
                    }
                    yield_now().await;
                }
                drop((acquire, holder));
                assert_eq!(locks.stats().holders, 0);
                assert!(pool.try_acquire().await.unwrap().is_some());
                drop(pool);
                // The question for the next interval is still on its way, and holds on to the pool and its marker.
                while server.held() > 0 {
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                nothing_is_left(&server);
            }
        }
    }
}

#[tokio::test]
async fn a_wait_in_the_middle_of_a_queue_can_be_dropped() {
    let server = MemoryServer::new();
    let sides: Vec<Locks> = (0..5).map(|_| server.locks()).collect();
    let holder = sides[0].try_acquire("job").await.unwrap().unwrap();
    let mut waits: Vec<_> = sides[1..]
        .iter()
        .map(|locks| poll(locks.acquire("job").without_limit()))
        .collect();
    assert_eq!(server.queued(), 4);
    drop(waits.remove(1));
    assert_eq!(server.queued(), 3);
    drop(holder);
    for mut wait in waits {
        drop(wait.ready().unwrap());
    }
    nothing_is_left(&server);
}

#[tokio::test]
async fn those_behind_an_exclusive_wait_that_was_dropped_share_the_key_at_once() {
    let server = MemoryServer::new();
    let [one, two, three] = [server.locks(), server.locks(), server.locks()];
    let reader = one.try_acquire("job").shared().await.unwrap().unwrap();
    let writer = poll(two.acquire("job").without_limit());
    let mut late = poll(three.acquire("job").shared().without_limit());
    drop(writer);
    let late = late.ready().unwrap();
    drop((reader, late));
    nothing_is_left(&server);
}

#[tokio::test]
async fn a_guard_on_its_way_goes_back_with_the_future_that_did_not_fetch_it() {
    let server = MemoryServer::new();
    let locks = server.locks();
    let holder = locks.try_acquire("job").await.unwrap().unwrap();
    let first = poll(locks.acquire("job").without_limit());
    let mut second = poll(locks.acquire("job").without_limit());
    drop(holder);
    assert_eq!(locks.stats().holders, 1, "the key is the first one's already");
    assert!(second.is_pending());
    drop(first);
    drop(second.ready().unwrap());
    nothing_is_left(&server);
}
