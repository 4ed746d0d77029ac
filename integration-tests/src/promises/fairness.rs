//! Turns: first-in first-out in a process, and bounded hand-over between processes.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use latchwork_core::{Key, Locks, Mode, Slots, WaitMethod};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::fresh_key;
use crate::SessionWorld;
use crate::meter::Meter;
use crate::polling::poll_once;
use crate::world::LONG;

/// Tasks that go on until they are stopped.
struct Busy {
    stop: Arc<AtomicBool>,
    rounds: watch::Sender<usize>,
    tasks: JoinSet<()>,
}

impl Busy {
    fn new() -> Self {
        Self {
            stop: Arc::default(),
            rounds: watch::Sender::new(0),
            tasks: JoinSet::new(),
        }
    }

    /// Adds a task that does something over and over again.
    fn run<F: Future<Output = ()> + Send>(&mut self, mut work: impl FnMut() -> F + Send + 'static) {
        let (stop, rounds) = (Arc::clone(&self.stop), self.rounds.clone());
        self.tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                work().await;
                rounds.send_modify(|rounds| *rounds += 1);
            }
        });
    }

    /// Two tasks that hand a key from one to the other without a pause.
    fn hand_over(process: &Locks, key: Key, meter: &Meter) -> Self {
        let mut busy = Self::new();
        for _ in 0..2 {
            let (process, meter) = (process.clone(), meter.clone());
            busy.run(move || {
                let (process, meter) = (process.clone(), meter.clone());
                async move {
                    let guard = process.acquire(key).without_limit().await.unwrap();
                    let inside = meter.enter(key, Mode::Exclusive);
                    tokio::task::yield_now().await;
                    drop(inside);
                    drop(guard);
                }
            });
        }
        busy
    }

    /// Waits until they are at it, so that there is something to compete with.
    async fn are_at_it(&self) {
        let mut rounds = self.rounds.subscribe();
        rounds.wait_for(|rounds| *rounds > 8).await.unwrap();
    }

    /// Stops, and fails the test if nothing was done since [`Busy::are_at_it`].
    async fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(done) = self.tasks.join_next().await {
            done.unwrap();
        }
        let rounds = *self.rounds.borrow();
        assert!(rounds > 9, "only {rounds} rounds: there was nothing to compete with");
    }
}

/// Tasks of one process have the key in the order in which they came, whoever held it before.
pub async fn local_waiters_are_served_in_turn<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    for holder in [&one, &two] {
        let key = fresh_key();
        let hold = holder.acquire(key).within(LONG).await.unwrap();
        let order = std::sync::Mutex::new(Vec::new());
        let mut waiting = Vec::new();
        for number in 0..30 {
            let mut asked = Box::pin(one.acquire(key).within(LONG));
            assert!(poll_once(asked.as_mut()).await.is_pending());
            let order = &order;
            waiting.push(async move {
                let guard = asked.await.unwrap();
                order.lock().unwrap().push(number);
                tokio::task::yield_now().await;
                drop(guard);
            });
        }
        drop(hold);
        join_all(waiting).await;
        assert_eq!(order.into_inner().unwrap(), Vec::from_iter(0..30));
    }
}

/// A shared one that comes behind an exclusive one who waits does not overtake it.
pub async fn a_shared_one_does_not_overtake<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let key = fresh_key();
    let reader = one.acquire(key).shared().within(LONG).await.unwrap();
    let mut writer = pin!(one.acquire(key).within(LONG));
    assert!(poll_once(writer.as_mut()).await.is_pending());
    let mut behind = pin!(one.acquire(key).shared().within(LONG));
    assert!(poll_once(behind.as_mut()).await.is_pending());
    assert!(one.try_acquire(key).shared().await.unwrap().is_none());
    let (released, writer) = tokio::join!(reader.release(), writer);
    released.unwrap();
    let writer = writer.unwrap();
    assert!(poll_once(behind.as_mut()).await.is_pending());
    assert!(two.try_acquire(key).shared().await.unwrap().is_none());
    let (released, behind) = tokio::join!(writer.release(), behind);
    released.unwrap();
    behind.unwrap().release().await.unwrap();
}

/// While tasks of one process hand a key over without a pause, another process has its turn.
pub async fn another_process_gets_its_turn<W: SessionWorld>(world: &W) {
    turns(world, WaitMethod::Queue).await;
}

/// So has a process that polls, and has no place in any queue.
pub async fn a_polling_process_gets_its_turn<W: SessionWorld>(world: &W) {
    turns(world, WaitMethod::Poll).await;
}

async fn turns<W: SessionWorld>(world: &W, method: WaitMethod) {
    let (one, two) = (world.process().await, world.process().await);
    let (key, meter) = (fresh_key(), Meter::default());
    let busy = Busy::hand_over(&one, key, &meter);
    busy.are_at_it().await;
    let mut waits = Vec::new();
    for _ in 0..5 {
        let begun = Instant::now();
        let guard = two.acquire(key).wait_by(method).within(LONG).await.unwrap();
        waits.push(begun.elapsed());
        let inside = meter.enter(key, Mode::Exclusive);
        sleep(Duration::from_millis(1)).await;
        drop(inside);
        drop(guard);
    }
    busy.stop().await;
    waits.sort();
    // A turn lasts 25 ms; one who polls must also meet a poll interval in which the others stay off.
    let bound = if method == WaitMethod::Queue && W::QUEUES {
        500
    } else {
        5_000
    };
    assert!(waits[2] < Duration::from_millis(bound), "{waits:?}");
}

/// Both processes hand a key over among their own tasks, and both have their turns.
pub async fn two_busy_processes_take_turns<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let (key, meter) = (fresh_key(), Meter::default());
    let (first, second) = (Busy::hand_over(&one, key, &meter), Busy::hand_over(&two, key, &meter));
    sleep(Duration::from_millis(600)).await;
    first.stop().await;
    second.stop().await;
}

/// Shared holders that come and go without a gap let an exclusive one in: of another process, and of their own.
pub async fn shared_joins_let_an_exclusive_one_in<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let (key, meter) = (fresh_key(), Meter::default());
    let mut busy = Busy::new();
    for _ in 0..4 {
        let (one, meter) = (one.clone(), meter.clone());
        busy.run(move || {
            let (one, meter) = (one.clone(), meter.clone());
            async move {
                let guard = one.acquire(key).shared().without_limit().await.unwrap();
                let inside = meter.enter(key, Mode::Shared);
                sleep(Duration::from_micros(fastrand::u64(500..3_000))).await;
                drop(inside);
                drop(guard);
            }
        });
    }
    busy.are_at_it().await;
    for process in [&two, &one, &two, &one, &two] {
        let guard = process.acquire(key).within(LONG).await.unwrap();
        let inside = meter.enter(key, Mode::Exclusive);
        sleep(Duration::from_millis(1)).await;
        drop(inside);
        drop(guard);
    }
    busy.stop().await;
    assert!(meter.most_together() > 1, "shared holders never met");
}

/// While tasks of one process hand a slot over without a pause, another process has it too.
pub async fn slots_get_round<W: SessionWorld>(world: &W) {
    let (one, two) = (world.process().await, world.process().await);
    let (pool, others): (Slots, Slots) = (one.slots("pool", 2).unwrap(), two.slots("pool", 2).unwrap());
    let meter = Meter::default();
    let mut busy = Busy::new();
    for _ in 0..5 {
        let (pool, meter) = (pool.clone(), meter.clone());
        busy.run(move || {
            let (pool, meter) = (pool.clone(), meter.clone());
            async move {
                let permit = pool.acquire().without_limit().await.unwrap();
                let inside = meter.enter(permit.key(), Mode::Exclusive);
                tokio::task::yield_now().await;
                drop(inside);
                drop(permit);
            }
        });
    }
    busy.are_at_it().await;
    for _ in 0..5 {
        let permit = others.acquire().within(LONG).await.unwrap();
        let inside = meter.enter(permit.key(), Mode::Exclusive);
        sleep(Duration::from_millis(1)).await;
        drop(inside);
        drop(permit);
    }
    busy.stop().await;
}
