//! What the leaders of a world do, and the order in which that begins, is cancelled, returns, and has its lock given up.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::world::World;
use crate::{
    clock::Moment,
    fence::Term,
    leader::{Candidate, Leading},
};

/// Who is at work in a world.
#[derive(Debug, Default)]
pub(super) struct AtWork {
    works: BTreeMap<Term, Work>,
    /// Of how many works the lock was given up in the end.
    pub(super) given_up: u32,
    /// How many were at work when another began, as they may.
    pub(super) overlaps: u32,
    /// How many waited for their own resignation.
    pub(super) resigned_inside: u32,
    /// What must not be.
    pub(super) faults: Vec<String>,
}

#[derive(Debug)]
struct Work {
    process: usize,
    leading: Leading,
    cancel: CancellationToken,
    cancelled_at: Option<Moment>,
    drain_limit: Option<Duration>,
    /// Its lock was lost, or given up when it had taken too long.
    has_no_lock: bool,
}

impl AtWork {
    fn begins(&mut self, work: Work) {
        let term = work.leading.term();
        for (other, old) in &self.works {
            if old.process == work.process {
                self.faults
                    .push(format!("{term} begins before {other} of this process has returned"));
            }
            if other < &term {
                self.overlaps += 1;
                if !old.has_no_lock {
                    self.faults.push(format!("{term} begins while {other} has its lock"));
                }
            }
        }
        if self.works.insert(term, work).is_some() {
            self.faults.push(format!("{term} has two works"));
        }
    }

    /// The lock of a term is given up in order: its work was cancelled, and has returned or had its time for that.
    pub(super) fn gives_up(&mut self, term: Term, now: Moment) {
        self.given_up += 1;
        let Some(work) = self.works.get_mut(&term) else { return };
        let had = work.cancelled_at.map(|at| now.since(at));
        if work.drain_limit.is_none_or(|limit| had < Some(limit)) {
            let fault =
                format!("the lock of {term} is given up {had:?} after its work was cancelled, and before its return");
            self.faults.push(fault);
        }
        work.has_no_lock = true;
    }

    /// The lock of a term is lost on the server.
    pub(super) fn loses(&mut self, term: Term) {
        if let Some(work) = self.works.get_mut(&term) {
            work.has_no_lock = true;
        }
    }

    /// Those who go on as if they led beside a newer one.
    pub(super) fn believers(&self) -> Vec<Term> {
        let newest = self.works.keys().next_back().copied();
        let works = self.works.iter().filter(|(term, _)| Some(**term) != newest);
        let believes = |work: &Work| work.leading.is_leader() && !work.cancel.is_cancelled();
        works
            .filter(|(_, work)| believes(work))
            .map(|(term, _)| *term)
            .collect()
    }
}

/// Works whenever a candidate leads: until it is cancelled and a while longer, or until it is done or resigns by itself.
pub(super) async fn works(
    world: World,
    process: usize,
    candidate: Candidate,
    drain_limit: Option<Duration>,
    mut random: fastrand::Rng,
) {
    loop {
        let work = |leading: Leading, cancel: CancellationToken| {
            let (world, candidate) = (world.clone(), candidate.clone());
            let lasts = Duration::from_millis(random.u64(0..120_000));
            let lingers = Duration::from_millis(random.u64(0..4_000));
            let resigns = random.bool();
            async move {
                let term = leading.term();
                let work = Work {
                    process,
                    leading,
                    cancel: cancel.clone(),
                    cancelled_at: None,
                    drain_limit,
                    has_no_lock: world.is_ended(term),
                };
                world.with_works(|at_work, _| at_work.begins(work));
                if cancel.run_until_cancelled(sleep(lasts)).await.is_some() && resigns {
                    candidate.resign().await;
                    world.with_works(|at_work, _| at_work.resigned_inside += 1);
                }
                if cancel.is_cancelled() {
                    world.with_works(|at_work, now| {
                        at_work.works.get_mut(&term).expect("it is at work").cancelled_at = Some(now);
                    });
                    sleep(lingers).await;
                }
                world.with_works(|at_work, _| at_work.works.remove(&term));
            }
        };
        if candidate.run(work).await.is_none() {
            return;
        }
    }
}
