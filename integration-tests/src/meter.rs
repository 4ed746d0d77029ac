//! Finds out whether two were inside at once who must not be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use latchwork_core::{Key, Mode};

/// Who is inside, by key. Looks neither at guards nor at the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    inside: HashMap<Key, (u32, u32)>,
    visits: usize,
    most_together: u32,
}

/// One who is inside.
#[derive(Debug)]
pub(crate) struct Inside {
    meter: Meter,
    key: Key,
    mode: Mode,
}

impl Meter {
    /// Goes in, and fails the test if somebody is inside who must not be.
    #[track_caller]
    pub(crate) fn enter(&self, key: Key, mode: Mode) -> Inside {
        let mut counts = self.0.lock().unwrap();
        let (exclusive, shared) = counts.inside.entry(key).or_default();
        match mode {
            Mode::Exclusive => *exclusive += 1,
            Mode::Shared => *shared += 1,
        }
        let (exclusive, shared) = (*exclusive, *shared);
        counts.visits += 1;
        counts.most_together = counts.most_together.max(shared);
        drop(counts);
        assert!(
            exclusive == 0 || (exclusive == 1 && shared == 0),
            "{exclusive} exclusive and {shared} shared holders of {key} at once"
        );
        Inside {
            meter: self.clone(),
            key,
            mode,
        }
    }

    /// How many have been inside.
    pub(crate) fn visits(&self) -> usize {
        self.0.lock().unwrap().visits
    }

    /// How many shared ones have been inside one key at once.
    pub(crate) fn most_together(&self) -> u32 {
        self.0.lock().unwrap().most_together
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Ok(mut counts) = self.meter.0.lock() {
            let (exclusive, shared) = counts.inside.entry(self.key).or_default();
            match self.mode {
                Mode::Exclusive => *exclusive -= 1,
                Mode::Shared => *shared -= 1,
            }
        }
    }
}
