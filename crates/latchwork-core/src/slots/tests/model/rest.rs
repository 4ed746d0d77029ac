//! What must be true of the two pools, at any moment, at rest and at the end.

use super::{SLOTS, Stands, World, key};
use crate::{clock::Moment, mode::Mode, slots::slot::Slot};

/// More rounds than any run to a rest can need.
const TOO_LONG: usize = 20_000;

/// More poll intervals than it takes until nothing changes any more.
const MANY_INTERVALS: usize = 60;

impl World {
    pub(super) fn check(&self) {
        let mut held = 0;
        for side in &self.sides {
            assert!(side.table.permits() <= SLOTS as usize);
            for (_, stands) in side.people.values() {
                let Stands::Holds { slot, session, .. } = stands else {
                    continue;
                };
                if !session.is_lost() {
                    held += 1;
                    assert!(
                        self.server.is_held(session.id(), key(*slot), Mode::Exclusive),
                        "slot {slot} rests on nothing"
                    );
                }
            }
        }
        assert!(held <= SLOTS, "{held} permits");
        for slot in 0..SLOTS {
            assert!(self.server.holders(key(slot)).len() <= 1);
        }
    }

    fn something_moves(&mut self) -> bool {
        (0..2).any(|at| self.a_job_is_done(at) || self.a_request_arrives(at) || self.an_answer_arrives(at))
    }

    /// Everything that needs nobody to do anything happens.
    pub(super) fn come_to_rest(&mut self) {
        let losses = std::mem::replace(&mut self.losses, false);
        for side in &self.sides {
            side.session.trust_until(Moment::NEVER);
        }
        // Those who have vanished are served and release, and what they release may rest again.
        for _ in 0..MANY_INTERVALS {
            for round in 0.. {
                assert!(round < TOO_LONG, "the pools go round in circles");
                if !self.something_moves() {
                    break;
                }
            }
            let intervals = [0, 1].map(|at| self.sides[at].later.len());
            for (at, begun) in intervals.into_iter().enumerate() {
                for _ in 0..begun {
                    self.an_interval_is_over(at);
                }
            }
        }
        while self.something_moves() {}
        self.losses = losses;
    }

    /// At rest, nobody waits while a slot is free, nobody who tries waits at all, and a try for a free slot gets it.
    pub(super) fn what_is_free_is_granted(&mut self) {
        let free = (0..SLOTS)
            .filter(|slot| self.server.holders(key(*slot)).is_empty())
            .count();
        for side in &self.sides {
            let waits = side.table.waiters.len();
            assert!(
                waits == 0 || free == 0,
                "{waits} wait and {free} are free: {:?}",
                side.table
            );
            assert!(
                !side.table.waiters.iter().any(|waiter| waiter.tries),
                "a try is not answered"
            );
            let resting = |slot: &Slot| matches!(slot, Slot::Resting { .. } | Slot::Settling { .. });
            assert!(!side.table.slots.iter().any(resting), "{:?}", side.table);
        }
        if free > 0 {
            let at = self.seed.rng.usize(..2);
            let who = self.comes(at, true);
            let losses = std::mem::replace(&mut self.losses, false);
            while self.something_moves() {}
            self.losses = losses;
            let stands = self.sides[at].people.get(&who).map(|(_, stands)| stands);
            assert!(
                matches!(stands, Some(Stands::Holds { .. })),
                "{free} are free: {stands:?}"
            );
        }
    }

    pub(super) fn everybody_goes_home(&mut self) {
        loop {
            self.come_to_rest();
            self.check();
            if !(self.somebody_releases(0) || self.somebody_releases(1)) {
                break;
            }
        }
        for side in &self.sides {
            assert!(side.people.is_empty(), "forgotten: {:?}", side.people);
            assert_eq!(side.table.permits(), 0);
            assert!(side.later.is_empty(), "an idle pool asks for nothing");
            assert!(side.served > 0, "a run in which nobody was served shows nothing");
        }
        assert!(self.server.is_empty(), "left behind: {:?}", self.server);
    }
}
