//! A map that is bounded, and forgets what has not been used for longest.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard},
};

use foldhash::fast::RandomState;

use super::RateRow;
use crate::locks::lock;

/// So many parts have a mutex each.
const PARTS: usize = 16;

/// Values by row, in parts.
#[derive(Debug)]
pub(super) struct Recent<V> {
    parts: Box<[Mutex<Part<V>>]>,
    hasher: RandomState,
}

/// Two generations: what is used moves to the younger one, and when that is full it becomes the elder, whose place is
/// taken. So at most `2 * room` values are kept, without a list of who was used when.
#[derive(Debug)]
pub(super) struct Part<V> {
    young: HashMap<RateRow, V, RandomState>,
    old: HashMap<RateRow, V, RandomState>,
    room: usize,
}

impl<V> Recent<V> {
    /// Keeps at most `most` values, or somewhat fewer.
    pub(super) fn new(most: usize) -> Self {
        let room = most / PARTS / 2;
        Self {
            parts: (0..PARTS).map(|_| Mutex::new(Part::new(room))).collect(),
            hasher: RandomState::default(),
        }
    }

    /// The part that a row is in.
    pub(super) fn part(&self, row: RateRow) -> MutexGuard<'_, Part<V>> {
        use std::hash::BuildHasher as _;
        // The maps hash with states of their own, so that a part's rows do not crowd in them.
        lock(&self.parts[self.hasher.hash_one(row) as usize % PARTS])
    }

    /// How many values are kept.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| lock(part).len()).sum()
    }
}

impl<V> Part<V> {
    fn new(room: usize) -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
            room,
        }
    }

    /// Looks a value up, without making it younger.
    pub(super) fn get(&self, row: RateRow) -> Option<&V> {
        self.young.get(&row).or_else(|| self.old.get(&row))
    }

    pub(super) fn remove(&mut self, row: RateRow) {
        self.young.remove(&row);
        self.old.remove(&row);
    }

    /// Keeps a value. Of the eldest those that do not matter any more go first; others only where there is no room.
    pub(super) fn put(&mut self, row: RateRow, value: V, matters: impl Fn(&V) -> bool) {
        if self.room == 0 {
            return;
        }
        self.old.remove(&row);
        if self.young.len() >= self.room && !self.young.contains_key(&row) {
            let mut old = mem::replace(&mut self.old, mem::take(&mut self.young));
            old.retain(|_, value| matters(value));
            // Half of the room, so that as many puts again pass before the next turn.
            self.young.extend(old.into_iter().take(self.room / 2));
        }
        self.young.insert(row, value);
    }

    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
