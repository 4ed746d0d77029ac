//! What is measured, and how: the same code for all.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{Failure, statistics::nanos};

/// How long a round may last beyond its length before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// Reading the clock twice costs a good part of the fastest cycle, so with many tasks only one cycle in so many is timed.
const TIMED_ONE_IN: u64 = 8;

/// One way to lock.
pub(crate) trait Contender: Send + Sync + 'static {
    type Task: Task;

    /// Makes what one of the tasks works with; the key is no other task's.
    fn task(&self, key: i64) -> Self::Task;

    /// Waits until the server has seen all that the tasks have asked for.
    fn settle(&self) -> impl Future<Output = Result<(), Failure>> + Send {
        async { Ok(()) }
    }
}

/// One task that acquires and releases a key of its own.
pub(crate) trait Task: Send + 'static {
    /// Acquires, says so to the watch, and releases.
    fn cycle(&mut self, watch: &mut Stopwatch) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Times the acquires of one task.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    one_in: u64,
    started: Option<Instant>,
    acquired: u64,
    samples: Vec<u64>,
}

impl Stopwatch {
    fn new(one_in: u64) -> Self {
        Self {
            one_in,
            started: None,
            acquired: 0,
            samples: Vec::with_capacity(4_096),
        }
    }

    fn start(&mut self) {
        self.started = self.acquired.is_multiple_of(self.one_in).then(Instant::now);
    }

    /// To be called as soon as the lock is there. With a key of one's own, there is no reason for it not to be.
    pub(crate) fn acquired(&mut self, acquired: bool) -> Result<(), Failure> {
        if let Some(started) = self.started.take() {
            self.samples.push(nanos(started.elapsed()));
        }
        self.acquired += 1;
        if acquired {
            Ok(())
        } else {
            Err("a key that nobody else uses was not free".into())
        }
    }
}

/// What one round has shown.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) cycles: u64,
    pub(crate) elapsed: Duration,
    /// How long acquires took, in nanoseconds.
    pub(crate) samples: Vec<u64>,
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A contender of any kind.
pub(crate) trait Entrant: Send + Sync {
    /// Lets so many tasks work for so long.
    fn round(&self, tasks: usize, length: Duration) -> BoxFuture<'_, Result<Round, Failure>>;
}

impl<C: Contender> Entrant for C {
    fn round(&self, tasks: usize, length: Duration) -> BoxFuture<'_, Result<Round, Failure>> {
        Box::pin(async move { timeout(length + PATIENCE, run(self, tasks, length)).await? })
    }
}

async fn run<C: Contender>(contender: &C, tasks: usize, length: Duration) -> Result<Round, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let one_in = if tasks < 16 { 1 } else { TIMED_ONE_IN };
    let mut running = JoinSet::new();
    let started = Instant::now();
    for key in (1_000_000..).take(tasks) {
        let stop = Arc::clone(&stop);
        let mut task = contender.task(key);
        running.spawn(async move {
            let mut watch = Stopwatch::new(one_in);
            while !stop.load(Ordering::Relaxed) {
                watch.start();
                task.cycle(&mut watch).await?;
            }
            Ok::<_, Failure>(watch)
        });
    }
    sleep(length).await;
    stop.store(true, Ordering::Relaxed);
    let mut round = Round::default();
    while let Some(ended) = running.join_next().await {
        let watch = ended??;
        round.cycles += watch.acquired;
        round.samples.extend(watch.samples);
    }
    contender.settle().await?;
    round.elapsed = started.elapsed();
    Ok(round)
}
