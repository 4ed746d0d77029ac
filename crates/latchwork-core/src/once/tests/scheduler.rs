//! Schedulers: which ticks are run, when, by whom, and what is told of them.

use std::{
    collections::HashSet,
    convert::Infallible,
    future::pending,
    num::NonZeroU32,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{HOUR, SECOND, noon};
use crate::{
    WallClock,
    locks::lock,
    memory::MemoryServer,
    once::{Job, JobError, Missed, OnceError, RunEnd, Schedule, Scheduler},
};

const MINUTE: Duration = Duration::from_secs(60);

/// A database, the true time, and what was run: each tick, and when it began.
#[derive(Clone)]
struct World {
    server: MemoryServer,
    clock: WallClock,
    runs: Arc<Mutex<Vec<(SystemTime, SystemTime)>>>,
}

impl World {
    fn new() -> Self {
        let clock = WallClock::of_tokio(noon());
        Self {
            server: MemoryServer::on_clock(clock.clone()),
            clock,
            runs: Arc::default(),
        }
    }

    /// A job that notes its ticks, and takes so long.
    fn job(&self, interval: Duration, takes: Duration) -> Job {
        let (runs, clock) = (Arc::clone(&self.runs), self.clock.clone());
        Job::new("job", &Schedule::every(interval).unwrap(), move |tick| {
            lock(&runs).push((tick, clock.now()));
            async move {
                sleep(takes).await;
                Ok::<(), Infallible>(())
            }
        })
    }

    fn scheduler(&self, job: Job) -> Scheduler {
        let scheduler = Scheduler::new(&self.server.locks()).with_clock(self.clock.clone());
        scheduler.with_job(job).unwrap()
    }

    /// Begins a scheduler with this job, as one process does.
    fn begin(&self, job: Job) -> Process {
        Process::new(self.scheduler(job))
    }

    /// The ticks that were run, as minutes since noon.
    fn minutes(&self) -> Vec<u64> {
        let ticks = lock(&self.runs).iter().map(|(tick, _)| *tick).collect::<Vec<_>>();
        let minutes = ticks.into_iter().map(|tick| tick.duration_since(noon()).unwrap());
        minutes.map(|since| since.as_secs() / 60).collect()
    }
}

struct Process {
    stop: CancellationToken,
    scheduler: Arc<Scheduler>,
    runs: JoinHandle<()>,
}

impl Process {
    fn new(scheduler: Scheduler) -> Self {
        let (stop, scheduler) = (CancellationToken::new(), Arc::new(scheduler));
        let (stopped, runs) = (stop.clone(), Arc::clone(&scheduler));
        let runs = tokio::spawn(async move { runs.run_until(stopped.cancelled()).await });
        Self { stop, scheduler, runs }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.runs.await.unwrap();
    }
}

fn all(at_most: u32) -> Missed {
    Missed::RunAll {
        at_most: NonZeroU32::new(at_most).unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn each_tick_is_run_by_one_of_three_processes() {
    let world = World::new();
    let processes = [0; 3].map(|_| world.begin(world.job(MINUTE, SECOND).with_jitter(30 * SECOND)));
    sleep(10 * MINUTE + 40 * SECOND).await;
    for process in processes {
        process.stop().await;
    }
    assert_eq!(world.minutes(), (0..=10).collect::<Vec<_>>());
    assert_eq!(world.server.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn processes_with_skewed_clocks_run_each_tick_once_between_them() {
    let world = World::new();
    let processes = [0_u64, 7, 59, 200].map(|behind| {
        let clock = world.clock.clone();
        let skewed = WallClock::from_fn(move || clock.now() - Duration::from_secs(behind));
        Process::new(world.scheduler(world.job(MINUTE, SECOND)).with_clock(skewed))
    });
    sleep(30 * MINUTE + SECOND).await;
    for process in processes {
        process.stop().await;
    }
    let minutes = world.minutes();
    assert_eq!(
        minutes.iter().collect::<HashSet<_>>().len(),
        minutes.len(),
        "{minutes:?}"
    );
    assert_eq!(minutes, (0..=30).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_jitter_without_bounds_is_one_of_a_day_and_stays_before_the_next_tick() {
    for missed in [Missed::Skip, Missed::RunOnce, all(3)] {
        let world = World::new();
        let job = world.job(MINUTE, Duration::ZERO).with_missed(missed);
        let process = world.begin(job.with_jitter(Duration::MAX));
        sleep(5 * MINUTE).await;
        process.stop().await;
        let minutes = world.minutes();
        assert!(minutes.len() >= 4, "{missed:?}: {minutes:?}");
        for (tick, began) in &*lock(&world.runs) {
            assert!(began.duration_since(*tick).unwrap() <= MINUTE, "{missed:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_whose_clock_panics_tells_so_and_goes_on() {
    let world = World::new();
    let is_broken = Arc::new(AtomicBool::new(true));
    let (clock, breaks) = (world.clock.clone(), Arc::clone(&is_broken));
    let clock = WallClock::from_fn(move || {
        assert!(!breaks.load(Ordering::Acquire), "a clock that panics");
        clock.now()
    });
    let process = Process::new(world.scheduler(world.job(MINUTE, SECOND)).with_clock(clock));
    sleep(SECOND).await;
    let failure = process.scheduler.jobs()[0].failure().unwrap();
    assert!(matches!(&*failure, OnceError::Panicked { .. }), "{failure}");
    is_broken.store(false, Ordering::Release);
    sleep(3 * MINUTE).await;
    assert!(process.scheduler.jobs()[0].failure().is_none());
    process.stop().await;
    assert_eq!(world.minutes(), [0, 1, 2, 3]);
}

/// Runs noon's tick, and comes back when those of 1, 2 and 3 o'clock were missed.
async fn after_a_pause(missed: Missed) -> World {
    let world = World::new();
    let job = || world.job(HOUR, SECOND).with_missed(missed);
    let before = world.server.locks().once("job").tick(noon(), HOUR);
    before.run(async {}).await.unwrap();
    sleep(3 * HOUR + 30 * MINUTE).await;
    let process = world.begin(job());
    sleep(40 * MINUTE).await;
    process.stop().await;
    world
}

#[tokio::test(start_paused = true)]
async fn what_was_missed_is_skipped_or_run_once_or_all_of_it_in_order() {
    assert_eq!(after_a_pause(Missed::Skip).await.minutes(), [240]);
    assert_eq!(after_a_pause(Missed::RunOnce).await.minutes(), [180, 240]);
    assert_eq!(after_a_pause(all(10)).await.minutes(), [60, 120, 180, 240]);
    assert_eq!(after_a_pause(all(2)).await.minutes(), [120, 180, 240]);
}

#[tokio::test(start_paused = true)]
async fn several_processes_make_up_for_what_was_missed_once_between_them() {
    let world = World::new();
    let before = world.server.locks().once("job").tick(noon(), HOUR);
    before.run(async {}).await.unwrap();
    sleep(5 * HOUR + SECOND).await;
    let processes = [0; 3].map(|_| world.begin(world.job(HOUR, MINUTE).with_missed(all(100))));
    sleep(10 * MINUTE).await;
    for process in processes {
        process.stop().await;
    }
    assert_eq!(world.minutes(), [60, 120, 180, 240, 300]);
}

#[tokio::test(start_paused = true)]
async fn of_a_new_job_nothing_was_missed_but_of_one_that_is_known_it_was() {
    for missed in [Missed::RunOnce, all(10)] {
        let world = World::new();
        sleep(30 * MINUTE).await;
        let process = world.begin(world.job(HOUR, SECOND).with_missed(missed));
        sleep(10 * MINUTE).await;
        assert_eq!(world.minutes(), [0_u64; 0]);
        let report = &process.scheduler.reports().await.unwrap()[0];
        assert_eq!(report.last.as_ref().unwrap().end, Some(RunEnd::Enrolled));
        process.stop().await;
        // It comes back when 1 o'clock was missed.
        sleep(HOUR).await;
        let process = world.begin(world.job(HOUR, SECOND).with_missed(missed));
        sleep(10 * MINUTE).await;
        process.stop().await;
        assert_eq!(world.minutes(), [60]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_longer_than_the_interval_is_never_beside_another() {
    let ticks = async |missed| {
        let world = World::new();
        let processes = [0; 2].map(|_| world.begin(world.job(MINUTE, 130 * SECOND).with_missed(missed)));
        sleep(10 * MINUTE + 5 * SECOND).await;
        for process in processes {
            process.stop().await;
        }
        let runs = lock(&world.runs).clone();
        for pair in runs.windows(2) {
            let apart = pair[1].1.duration_since(pair[0].1).unwrap();
            assert!(apart >= 130 * SECOND, "{apart:?}");
        }
        world.minutes()
    };
    let skipped = ticks(Missed::Skip).await;
    assert!(skipped.windows(2).all(|pair| pair[1] - pair[0] >= 2), "{skipped:?}");
    let in_turn = ticks(all(1_000)).await;
    // Those after the one that made the job known.
    assert_eq!(in_turn, (1..=in_turn.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn after_the_shutdown_nothing_begins_and_what_is_under_way_ends() {
    let world = World::new();
    let process = world.begin(world.job(MINUTE, 150 * SECOND));
    sleep(MINUTE).await;
    let begun = Instant::now();
    let scheduler = Arc::clone(&process.scheduler);
    process.stop().await;
    assert_eq!(begun.elapsed(), 90 * SECOND);
    assert_eq!(world.minutes(), [0]);
    assert_eq!(world.server.held(), 0);
    let report = &scheduler.reports().await.unwrap()[0];
    let last = report.last.as_ref().unwrap();
    assert_eq!((last.end, last.took()), (Some(RunEnd::Done), Some(150 * SECOND)));
}

#[tokio::test(start_paused = true)]
async fn what_has_not_ended_within_the_drain_limit_is_stopped() {
    let world = World::new();
    let scheduler = world.scheduler(world.job(MINUTE, HOUR)).with_drain_limit(5 * SECOND);
    let process = Process::new(scheduler);
    sleep(SECOND).await;
    let (begun, scheduler) = (Instant::now(), Arc::clone(&process.scheduler));
    process.stop().await;
    assert_eq!(begun.elapsed(), 5 * SECOND);
    assert_eq!(world.server.held(), 0);
    let report = &scheduler.reports().await.unwrap()[0];
    assert_eq!(report.last.as_ref().unwrap().end, Some(RunEnd::Dropped));
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_is_dropped_stops_its_runs() {
    let world = World::new();
    let scheduler = world.scheduler(world.job(MINUTE, HOUR));
    assert!(timeout(SECOND, scheduler.run_until(pending())).await.is_err());
    sleep(SECOND).await;
    assert_eq!(world.server.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_the_locks_ends_the_scheduler() {
    let world = World::new();
    let locks = world.server.locks();
    let scheduler = Scheduler::new(&locks).with_clock(world.clock.clone());
    let scheduler = scheduler.with_job(world.job(MINUTE, 20 * SECOND)).unwrap();
    let process = Process::new(scheduler);
    sleep(SECOND).await;
    let begun = Instant::now();
    locks.close().await;
    assert_eq!(begun.elapsed(), 19 * SECOND);
    process.runs.await.unwrap();
    assert_eq!(world.minutes(), [0]);
}

#[tokio::test(start_paused = true)]
async fn jobs_that_fail_or_panic_or_overrun_run_again_and_it_is_told() {
    let world = World::new();
    let minutely = Schedule::every(MINUTE).unwrap();
    let fails = Job::new("fails", &minutely, |_| async { Err("no paper") });
    let panics = Job::new("panics", &minutely, |_| async {
        panic!("no ink") as Result<(), Infallible>
    });
    let runs = AtomicU32::new(0);
    // Its first run fails, and what that has failed with is not told of the next ones.
    let overruns = Job::new("overruns", &minutely, move |_| {
        let is_first = runs.fetch_add(1, Ordering::Relaxed) == 0;
        async move { if is_first { Err("no ribbon") } else { pending().await } }
    });
    let mut scheduler = Scheduler::new(&world.server.locks()).with_clock(world.clock.clone());
    for job in [fails, panics, overruns.with_max_run(SECOND)] {
        scheduler = scheduler.with_job(job).unwrap();
    }
    let process = Process::new(scheduler);
    sleep(2 * MINUTE + 2 * SECOND).await;
    let reports = process.scheduler.reports().await.unwrap();
    let told: Vec<_> = reports
        .iter()
        .map(|report| (report.name.as_str(), report.last.as_ref().unwrap().end.unwrap()))
        .collect();
    let expected = [
        ("fails", RunEnd::Failed),
        ("panics", RunEnd::Failed),
        ("overruns", RunEnd::Overran),
    ];
    assert_eq!(told, expected);
    for report in &reports {
        assert_eq!(report.last.as_ref().unwrap().tick, noon() + 2 * MINUTE);
        assert_eq!(report.next, Some(noon() + 3 * MINUTE));
    }
    assert!(matches!(reports[2].failure.as_deref(), Some(OnceError::Overran { .. })));
    assert!(reports[0].failure.is_none());
    let errors: Vec<_> = reports
        .iter()
        .map(|report| report.work_error.as_deref().map(ToString::to_string))
        .collect();
    let [no_paper, panicked] = ["no paper", "the job has panicked"].map(|error| Some(error.to_owned()));
    assert_eq!(errors, [no_paper, panicked, None]);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_stopped_is_not_told_of_with_the_error_of_the_one_before() {
    let world = World::new();
    let is_first = AtomicBool::new(true);
    let job = Job::new("job", &Schedule::every(MINUTE).unwrap(), move |_| {
        let fails = is_first.swap(false, Ordering::Relaxed);
        async move {
            if fails {
                return Err("the disk is full");
            }
            pending().await
        }
    });
    let process = world.begin(job.with_max_run(SECOND));
    sleep(10 * SECOND).await;
    let report = process.scheduler.reports().await.unwrap().remove(0);
    assert!(report.work_error.is_some() && report.failure.is_none(), "{report:?}");
    sleep(MINUTE).await;
    let report = process.scheduler.reports().await.unwrap().remove(0);
    assert!(
        matches!(report.failure.as_deref(), Some(OnceError::Overran { .. })),
        "{report:?}"
    );
    assert!(report.work_error.is_none(), "{report:?}");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn jitter_stays_before_the_next_tick() {
    let world = World::new();
    let process = world.begin(world.job(MINUTE, Duration::ZERO).with_jitter(HOUR));
    sleep(200 * MINUTE).await;
    process.stop().await;
    let runs = lock(&world.runs).clone();
    assert!(runs.len() >= 199, "{}", runs.len());
    let late = runs.iter().map(|(tick, began)| began.duration_since(*tick).unwrap());
    let late: Vec<_> = late.collect();
    assert!(late.iter().all(|late| *late < MINUTE), "{late:?}");
    assert!(late.iter().any(|late| *late > 40 * SECOND) && late.iter().any(|late| *late < 20 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_process_whose_clock_is_in_2030_says_so_and_the_others_go_on() {
    let world = World::new();
    let clock = world.clock.clone();
    let in_2030 = WallClock::from_fn(move || clock.now() + 7 * 365 * 24 * HOUR);
    let wrong = Process::new(world.scheduler(world.job(MINUTE, SECOND)).with_clock(in_2030));
    let right = world.begin(world.job(MINUTE, SECOND));
    sleep(3 * MINUTE + 10 * SECOND).await;
    assert_eq!(world.minutes(), [0, 1, 2, 3]);
    let report = &wrong.scheduler.reports().await.unwrap()[0];
    assert!(
        matches!(report.failure.as_deref(), Some(OnceError::Ahead { .. })),
        "{report:?}"
    );
    wrong.stop().await;
    right.stop().await;
}

#[test]
fn two_jobs_of_one_name_are_refused() {
    let world = MemoryServer::new();
    let hourly = Schedule::every(HOUR).unwrap();
    let job = || Job::new("job", &hourly, |_| async { Ok::<(), Infallible>(()) });
    let scheduler = Scheduler::new(&world.locks()).with_job(job()).unwrap();
    let error = scheduler.with_job(job()).unwrap_err();
    assert!(matches!(&error, JobError::Twice { name } if name == "job"), "{error}");
}
