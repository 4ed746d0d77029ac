//! How many locks this process may hold, so that it is not the one to fill the server's lock table.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is held, and what may be granted by the requests on the wire.
#[derive(Debug)]
pub(crate) struct Room {
    taken: AtomicUsize,
    limit: AtomicUsize,
}

impl Room {
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            taken: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
        }
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Takes room for up to `wanted` locks, and returns for how many there is.
    pub(crate) fn take(&self, wanted: usize) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        let before = self.taken.fetch_add(wanted, Ordering::Relaxed);
        let granted = limit.saturating_sub(before).min(wanted);
        self.give_back(wanted - granted);
        granted
    }

    pub(crate) fn give_back(&self, locks: usize) {
        self.taken.fetch_sub(locks, Ordering::Relaxed);
    }

    /// Takes room for one lock until the reservation is dropped.
    pub(crate) fn reserve(&self) -> Option<Reservation<'_>> {
        (self.take(1) == 1).then(|| Reservation(Some(self)))
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Room for one lock.
#[derive(Debug)]
pub(crate) struct Reservation<'a>(Option<&'a Room>);

impl Reservation<'_> {
    /// Keeps the room taken, for a lock that is held now.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(room) = self.0 {
            room.give_back(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_given_than_there_is() {
        let room = Room::new(5);
        assert_eq!(room.take(3), 3);
        assert_eq!(room.take(3), 2);
        assert_eq!(room.take(1), 0);
        room.give_back(4);
        assert_eq!(room.taken(), 1);
        room.set_limit(0);
        assert_eq!(room.take(1), 0);
    }

    #[test]
    fn a_reservation_gives_back_what_it_took_and_one_that_failed_gives_nothing() {
        let room = Room::new(1);
        let reserved = room.reserve().unwrap();
        assert!(room.reserve().is_none());
        assert_eq!(room.taken(), 1);
        drop(reserved);
        assert_eq!(room.taken(), 0);
        room.reserve().unwrap().keep();
        assert_eq!(room.taken(), 1);
    }
}
