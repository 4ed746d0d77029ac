//! What must be true of the world, at any moment, at rest and at the end.

use super::{
    side::{Side, Stands},
    world::{KEYS, World},
};
use crate::{clock::Moment, gate::Want, mode::Mode};

/// More rounds than any run to a rest can need; beyond, the gates go round in circles.
const TOO_LONG: usize = 20_000;

impl World {
    /// What must be true at any moment.
    pub(super) fn check(&self) {
        for key in KEYS {
            let mut believed = Vec::new();
            for side in &self.sides {
                for person in side.people.values().filter(|person| person.key == key) {
                    let Stands::Holds { session, .. } = &person.stands else {
                        continue;
                    };
                    if session.is_lost() {
                        continue;
                    }
                    assert!(
                        self.server.is_held(session.id(), key, person.mode),
                        "{person:?} rests on nothing"
                    );
                    if session.is_trusted() {
                        believed.push(person.mode);
                    }
                }
            }
            let alone = believed.len() <= 1 || believed.iter().all(|mode| *mode == Mode::Shared);
            assert!(alone, "{key} is held {believed:?}");
        }
    }

    /// Lets everything happen that needs nobody to do anything.
    pub(super) fn come_to_rest(&mut self) {
        for side in &self.sides {
            side.lock_session.trust_until(Moment::NEVER);
        }
        let losses = std::mem::replace(&mut self.losses, false);
        for round in 0.. {
            assert!(round < TOO_LONG, "the gates go round in circles");
            if self.something_moves() {
                continue;
            }
            // Nothing is on its way: those who wait look once more, and if that moves nothing either, it is quiet.
            for at in 0..2 {
                let those: Vec<u32> = self.sides[at].people.keys().copied().collect();
                for who in those {
                    // One who looks may let others in, who then are gone from the list.
                    let person = self.sides[at].people.get(&who);
                    if person.is_some_and(|person| matches!(person.stands, Stands::Waits { .. })) {
                        self.sides[at].nudge(who);
                    }
                }
            }
            let asks = self.sides.iter().any(|side| !side.jobs.is_empty());
            if !asks || !self.probes_move() {
                break;
            }
        }
        self.losses = losses;
    }

    fn something_moves(&mut self) -> bool {
        (0..2).any(|at| {
            self.a_job_is_done(at)
                || self.a_request_arrives(at)
                || self.an_answer_arrives(at)
                || self.a_limit_runs_out(at)
                || (0..self.sides[at].polled.len()).any(|wait| self.poll(at, wait))
        })
    }

    /// Answers the questions of those who look again. Says whether that let anybody in.
    fn probes_move(&mut self) -> bool {
        let served: usize = self.sides.iter().map(|side| side.served).sum();
        while self.something_moves() {}
        served < self.sides.iter().map(|side| side.served).sum()
    }

    /// At rest, whoever is first in a queue has something in his way.
    pub(super) fn nobody_waits_for_nothing(&self) {
        for (at, key) in (0..2).flat_map(|at| KEYS.map(|key| (at, key))) {
            let Some(entry) = self.sides[at].table.entries.get(&key) else {
                continue;
            };
            let Some(head) = entry.waiters.front() else { continue };
            // One who has vanished looks no more; his leaving is still to come.
            let person = self.sides[at].people.get(&head.to);
            if person.is_some_and(|person| matches!(person.stands, Stands::Vanished)) {
                continue;
            }
            let held = self.server.holders(key);
            let in_the_way = held.iter().any(|(_, mode)| !mode.is_compatible_with(head.mode));
            let elsewhere = self.sides[1 - at]
                .table
                .entries
                .get(&key)
                .is_some_and(|entry| !entry.waiters.is_empty());
            assert!(in_the_way || elsewhere, "{at}: {head:?} waits for nothing: {entry:?}");
        }
    }

    /// At rest, a try for what is free is granted.
    pub(super) fn what_is_free_is_granted(&mut self) {
        for key in KEYS {
            let wanted = |side: &Side| {
                side.table
                    .entries
                    .get(&key)
                    .is_some_and(|entry| !entry.waiters.is_empty())
            };
            if self.sides.iter().any(wanted) {
                continue;
            }
            let mode = match self.server.holders(key) {
                [] if self.seed.rng.bool() => Mode::Exclusive,
                held if held.iter().any(|(_, mode)| *mode == Mode::Exclusive) => continue,
                _ => Mode::Shared,
            };
            let at = self.seed.rng.usize(..2);
            let losses = std::mem::replace(&mut self.losses, false);
            let who = self.comes(at, key, mode, Want::Try);
            while self.something_moves() {}
            let person = self.sides[at].people.get(&who).map(|person| &person.stands);
            assert!(
                matches!(person, Some(Stands::Holds { .. })),
                "{key} is free: {person:?}"
            );
            self.losses = losses;
        }
    }

    /// Nobody comes any more, and everybody releases what he has: then nothing is left.
    pub(super) fn everybody_goes_home(&mut self) {
        self.losses = false;
        for round in 0.. {
            assert!(round < TOO_LONG, "the gates go round in circles");
            self.come_to_rest();
            self.check();
            let holds = |stands: &Stands| matches!(stands, Stands::Holds { .. });
            let Some((at, who)) = (0..2).find_map(|at| self.one(at, holds).map(|who| (at, who))) else {
                break;
            };
            self.seed.note(|| format!("{at}: {who} goes home"));
            self.sides[at].release(who);
        }
        for side in &self.sides {
            assert!(side.people.is_empty(), "forgotten: {:?}", side.people);
            assert_eq!(side.table.len(), 0, "left behind: {:?}", side.table);
            assert!(side.served > 0, "a run in which nobody was served shows nothing");
        }
        assert!(self.server.is_empty(), "left behind: {:?}", self.server);
    }
}
