//! Candidates in a world where connections are cut, sessions are ended, and servers restart, in random runs.

use std::time::Duration;

use tokio::time::sleep;

use super::{until_leader, world::World};
use crate::{
    leader::{Candidate, LeaderState, Transition, Transitions},
    testing::Seed,
};

const PROCESSES: usize = 3;
const STEP: Duration = Duration::from_millis(100);
/// Ten minutes.
const STEPS: u32 = 6_000;

struct Run {
    world: World,
    seed: Seed,
    candidates: Vec<Candidate>,
    transitions: Vec<Transitions>,
    /// What has happened at all, over the run.
    led: u32,
    suspended: u32,
    deceived: u32,
}

impl Run {
    fn new(seed: u64) -> Self {
        let world = World::new(PROCESSES);
        let mut seed = Seed::new(seed);
        let candidates: Vec<_> = (0..PROCESSES)
            .map(|process| {
                let delay = Duration::from_millis(seed.rng.u64(0..500));
                let builder = world.locks(process).leader("a").with_campaign_delay(delay);
                builder.campaign().unwrap()
            })
            .collect();
        Self {
            transitions: candidates.iter().map(Candidate::transitions).collect(),
            world,
            seed,
            candidates,
            led: 0,
            suspended: 0,
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
            74..84 => drop(self.candidates[process].resign()),
            84..94 => self.candidates[process].set_eligible(false),
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
    let (mut led, mut suspended, mut deceived) = (0, 0, 0);
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
        for candidate in &run.candidates {
            candidate.shutdown().await;
        }
        run.follow().await;
        (led, suspended, deceived) = (led + run.led, suspended + run.suspended, deceived + run.deceived);
    }
    assert!(led > 100 && suspended > 20, "{led} {suspended}");
    assert!(deceived > 0, "the one case in which two may lead did not come about");
}
