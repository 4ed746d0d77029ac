//! Candidates in a world where connections are cut, sessions are ended, and servers restart, in random runs.

use std::time::Duration;

use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{until_leader, work::works, world::World};
use crate::{
    fence::Term,
    leader::{Candidate, LeaderState, Transition, Transitions},
    testing::Seed,
};

const PROCESSES: usize = 3;
const STEP: Duration = Duration::from_millis(100);
/// Ten minutes.
const STEPS: u32 = 6_000;
/// Longer than each delay of a campaign.
const RESIGN_DELAY: Duration = Duration::from_secs(2);
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

struct Run {
    world: World,
    seed: Seed,
    candidates: Vec<Candidate>,
    transitions: Vec<Transitions>,
    /// Until when each of them has to leave the leadership to others.
    holds_off: Vec<Option<(Instant, Term)>>,
    works: JoinSet<()>,
    /// What has happened at all, over the run.
    led: u32,
    suspended: u32,
    undrained: u32,
    deceived: u32,
}

impl Run {
    fn new(seed: u64) -> Self {
        let world = World::new(PROCESSES);
        let mut seed = Seed::new(seed);
        let mut works = JoinSet::new();
        let candidates: Vec<_> = (0..PROCESSES)
            .map(|process| {
                let delay = Duration::from_millis(seed.rng.u64(0..3) * seed.rng.u64(0..900));
                let mut builder = world.locks(process).leader("a").with_campaign_delay(delay);
                let drain_limit = seed.rng.bool().then_some(DRAIN_LIMIT);
                if let Some(limit) = drain_limit {
                    builder = builder.with_drain_limit(limit);
                }
                let candidate = builder.with_resign_delay(RESIGN_DELAY).campaign().unwrap();
                works.spawn(self::works(
                    world.clone(),
                    process,
                    candidate.clone(),
                    drain_limit,
                    seed.rng.fork(),
                ));
                candidate
            })
            .collect();
        Self {
            holds_off: vec![None; PROCESSES],
            works,
            transitions: candidates.iter().map(Candidate::transitions).collect(),
            world,
            seed,
            candidates,
            led: 0,
            suspended: 0,
            undrained: 0,
            deceived: 0,
        }
    }

    fn something_happens(&mut self) {
        let process = self.seed.rng.usize(0..PROCESSES);
        let event = self.seed.rng.u32(0..2_000);
        match event {
            0..20 => self.world.cut(process, true),
            20..60 => self.world.cut(process, false),
            60..70 => self.world.end_holder(),
            70..74 => self.world.restart(),
            74..84 => {
                let candidate = &self.candidates[process];
                if let Some(leading) = candidate.leading() {
                    self.holds_off[process] = Some((Instant::now() + RESIGN_DELAY, leading.term()));
                }
                drop(candidate.resign());
            }
            84..94 => {
                self.holds_off[process] = None;
                self.candidates[process].set_eligible(false);
            }
            94..124 => self.candidates[process].set_eligible(true),
            _ => return,
        }
        self.seed.note(|| format!("event {event} at process {process}"));
    }

    async fn step(&mut self) {
        self.world.step();
        sleep(STEP).await;
        let terms: Vec<_> = self
            .candidates
            .iter()
            .filter(|candidate| candidate.is_leader())
            .filter_map(|candidate| candidate.state().term())
            .collect();
        for (candidate, holds_off) in self.candidates.iter().zip(&self.holds_off) {
            if let (Some(leading), Some((until, resigned))) = (candidate.leading(), holds_off) {
                let is_again = leading.term() > *resigned && Instant::now() < *until;
                assert!(
                    !is_again,
                    "{} leads once more too soon after {resigned}",
                    leading.term()
                );
            }
        }
        let (faults, believers) = self
            .world
            .with_works(|at_work, _| (at_work.faults.clone(), at_work.believers()));
        assert!(faults.is_empty(), "{faults:?}");
        for term in believers {
            assert!(
                self.world.is_deceived(term),
                "the work of {term} goes on beside a newer one's"
            );
        }
        let newest = terms.iter().max();
        for term in &terms {
            if Some(term) != newest {
                assert!(self.world.is_deceived(*term), "{term} beside {newest:?}");
                self.deceived += 1;
            }
        }
    }

    /// Each transition is one that the machine has.
    async fn follow(&mut self) {
        for transitions in &mut self.transitions {
            let mut last = None;
            while let Some(transition) = transitions.next().await {
                let Transition::To(state) = transition else {
                    last = None;
                    continue;
                };
                assert!(
                    last.is_none_or(|last| may_follow(last, state)),
                    "{last:?} and then {state}"
                );
                self.led += u32::from(matches!(state, LeaderState::Leader(_)));
                self.suspended += u32::from(matches!(state, LeaderState::Suspended(_)));
                self.undrained += u32::from(matches!(state, LeaderState::Undrained(_)));
                last = Some(state);
            }
        }
    }
}

fn may_follow(last: LeaderState, next: LeaderState) -> bool {
    use LeaderState as Is;
    match (last, next) {
        (Is::Follower, Is::Leader(_) | Is::Closed) => true,
        (Is::Leader(was), Is::Suspended(is) | Is::Lost(is) | Is::Resigned(is))
        | (Is::Suspended(was), Is::Leader(is) | Is::Lost(is) | Is::Resigned(is))
        | (Is::Lost(was) | Is::Resigned(was), Is::Undrained(is)) => was == is,
        (Is::Lost(_) | Is::Resigned(_) | Is::Undrained(_), Is::Follower) => true,
        _ => false,
    }
}

#[tokio::test(start_paused = true)]
async fn never_two_lead_but_where_a_session_was_ended_unseen_and_every_transition_is_in_order() {
    let (mut led, mut suspended, mut deceived, mut undrained) = (0, 0, 0, 0);
    let (mut given_up, mut overlaps, mut resigned_inside) = (0, 0, 0);
    for seed in Seed::row(40, 4) {
        let mut run = Run::new(seed);
        for _ in 0..STEPS {
            run.something_happens();
            run.step().await;
        }
        for process in 0..PROCESSES {
            run.world.cut(process, false);
            run.candidates[process].set_eligible(true);
        }
        let settled = async {
            loop {
                run.world.step();
                sleep(STEP).await;
            }
        };
        tokio::select! {
            () = settled => {}
            _ = until_leader(&run.candidates[0]) => {}
            _ = until_leader(&run.candidates[1]) => {}
            _ = until_leader(&run.candidates[2]) => {}
            () = sleep(Duration::from_secs(60)) => panic!("nobody leads"),
        }
        // Their works end beside them.
        let ended = async {
            for candidate in &run.candidates {
                candidate.shutdown().await;
            }
        };
        let keeps = async {
            loop {
                run.world.step();
                sleep(STEP).await;
            }
        };
        tokio::select! {
            () = ended => {}
            () = keeps => {}
            () = sleep(Duration::from_secs(60)) => panic!("a candidate does not end"),
        }
        while let Some(work) = run.works.join_next().await {
            work.unwrap();
        }
        run.world.with_works(|at_work, _| {
            assert!(at_work.faults.is_empty(), "{:?}", at_work.faults);
            given_up += at_work.given_up;
            overlaps += at_work.overlaps;
            resigned_inside += at_work.resigned_inside;
        });
        run.follow().await;
        (led, suspended, deceived) = (led + run.led, suspended + run.suspended, deceived + run.deceived);
        undrained += run.undrained;
    }
    assert!(
        led > 100 && suspended > 20 && undrained > 20,
        "{led} {suspended} {undrained}"
    );
    assert!(
        given_up > 100 && overlaps > 0 && resigned_inside > 20,
        "{given_up} {overlaps} {resigned_inside}"
    );
    assert!(deceived > 0, "the one case in which two may lead did not come about");
}
