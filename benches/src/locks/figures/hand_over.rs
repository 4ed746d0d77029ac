//! Two tasks of one process hand one key to each other without pause.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use latchwork_core::{Key, Locks};
use latchwork_postgres::Postgres;
use tokio::{
    sync::Mutex,
    task::{JoinSet, yield_now},
    time::sleep,
};

use crate::{
    Failure,
    report::{Goal, Report},
    statistics::median,
};

const ROUNDS: usize = 9;
const LENGTH: Duration = Duration::from_millis(200);
/// How long either task would wait for the other.
const LIMIT: Duration = Duration::from_secs(10);

/// What two tasks hand to each other.
pub(crate) trait Baton: Clone + Send + Sync + 'static {
    /// Waits for the baton, and gives it back when `scene` has seen it.
    fn turn(&self, scene: &Scene, player: u64) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// What happens while the baton is held.
#[derive(Debug, Default)]
pub(crate) struct Scene {
    /// Whether the holder lets the other task run, so that the baton really goes back and forth: tasks that take what is
    /// free need not hand it over.
    yields: bool,
    stop: AtomicBool,
    last: AtomicU64,
    cycles: AtomicU64,
    hand_overs: AtomicU64,
}

impl Scene {
    async fn hold(&self, player: u64) {
        // Only the holder is here: plain loads and stores would do.
        if self.last.load(Ordering::Relaxed) != player {
            self.last.store(player, Ordering::Relaxed);
            self.hand_overs
                .store(self.hand_overs.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.cycles
            .store(self.cycles.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if self.yields {
            yield_now().await;
        }
    }
}

/// One key of ours.
#[derive(Clone, Debug)]
pub(crate) struct OurBaton {
    pub(crate) locks: Locks,
    pub(crate) key: Key,
}

impl Baton for OurBaton {
    async fn turn(&self, scene: &Scene, player: u64) -> Result<(), Failure> {
        let guard = self.locks.acquire(self.key).within(LIMIT).await?;
        scene.hold(player).await;
        drop(guard);
        Ok(())
    }
}

impl Baton for Arc<Mutex<()>> {
    async fn turn(&self, scene: &Scene, player: u64) -> Result<(), Failure> {
        let guard = self.lock().await;
        scene.hold(player).await;
        drop(guard);
        Ok(())
    }
}

/// Two tasks at it, until [`Players::stop`].
#[derive(Debug)]
pub(crate) struct Players {
    scene: Arc<Scene>,
    tasks: JoinSet<Result<(), Failure>>,
    started: Instant,
}

/// What two tasks have done in a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    pub(crate) cycles: f64,
    pub(crate) hand_overs: f64,
}

impl Players {
    pub(crate) fn start(baton: &impl Baton, yields: bool) -> Self {
        let scene = Arc::new(Scene {
            yields,
            ..Scene::default()
        });
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for player in 1..=2 {
            let (scene, baton) = (Arc::clone(&scene), baton.clone());
            tasks.spawn(async move {
                while !scene.stop.load(Ordering::Relaxed) {
                    baton.turn(&scene, player).await?;
                }
                Ok(())
            });
        }
        Self { scene, tasks, started }
    }

    pub(crate) async fn stop(mut self) -> Result<Speed, Failure> {
        self.scene.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        let seconds = self.started.elapsed().as_secs_f64();
        let per_second = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64 / seconds;
        Ok(Speed {
            cycles: per_second(&self.scene.cycles),
            hand_overs: per_second(&self.scene.hand_overs),
        })
    }
}

pub(crate) async fn measure(postgres: &Postgres, report: &mut Report) -> Result<(), Failure> {
    let ours = OurBaton {
        locks: postgres.locks(),
        key: Key::bigint(2_000_001),
    };
    let mutex = Arc::new(Mutex::new(()));
    for yields in [false, true] {
        let (mut our_speeds, mut mutex_speeds) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            our_speeds.push(play(&ours, yields).await?);
            mutex_speeds.push(play(&mutex, yields).await?);
        }
        let (ours, mutex) = (middle(&our_speeds), middle(&mutex_speeds));
        report.note(format!(
            "two tasks on one key{}: ours {:.0} cycles/s with {:.0} hand-overs/s, tokio::sync::Mutex {:.0} with {:.0}",
            if yields { ", the holder yields once" } else { "" },
            ours.cycles,
            ours.hand_overs,
            mutex.cycles,
            mutex.hand_overs,
        ));
        if yields {
            report.figure(
                "handover_vs_mutex",
                ours.hand_overs / mutex.hand_overs,
                Goal::AtLeast(0.4),
            );
        }
    }
    Ok(())
}

async fn play(baton: &impl Baton, yields: bool) -> Result<Speed, Failure> {
    let players = Players::start(baton, yields);
    sleep(LENGTH).await;
    players.stop().await
}

fn middle(speeds: &[Speed]) -> Speed {
    Speed {
        cycles: median(speeds.iter().map(|speed| speed.cycles).collect()),
        hand_overs: median(speeds.iter().map(|speed| speed.hand_overs).collect()),
    }
}
