//! Random runs that can be repeated.

use std::collections::VecDeque;

use fastrand::Rng;

/// How many of the last events are shown.
const SHOWN: usize = 60;

/// The randomness of one run, and its last events. Both are told if the run panics.
pub(crate) struct Seed {
    seed: u64,
    pub(crate) rng: Rng,
    events: VecDeque<String>,
}

impl Seed {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            rng: Rng::with_seed(seed),
            events: VecDeque::new(),
        }
    }

    /// A fixed row of seeds, and a few that are new in every run.
    pub(crate) fn row(fixed: u64, fresh: usize) -> impl Iterator<Item = u64> {
        (0..fixed).chain(std::iter::repeat_with(|| fastrand::u64(..)).take(fresh))
    }

    pub(crate) fn note(&mut self, event: impl FnOnce() -> String) {
        if self.events.len() == SHOWN {
            self.events.pop_front();
        }
        self.events.push_back(event());
    }

    /// One chance in `of`.
    pub(crate) fn chance(&mut self, of: u32) -> bool {
        self.rng.u32(0..of) == 0
    }

    /// Takes something out at random.
    pub(crate) fn take<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        (!from.is_empty()).then(|| from.swap_remove(self.rng.usize(..from.len())))
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for event in &self.events {
                eprintln!("{event}");
            }
            eprintln!("seed {}", self.seed);
        }
    }
}
