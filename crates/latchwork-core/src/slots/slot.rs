//! What a pool is made of.

use crate::{clock::Moment, engine::Grant, gate::HandOverBound};

/// One slot as this process sees it.
#[derive(Debug)]
pub(super) enum Slot {
    /// Not ours, as far as we know anybody's. Whoever came before the ticket `tried` has asked for it in vain since it
    /// was ours.
    Free {
        tried: u64,
    },
    /// The engine was asked for it by this flight.
    Asked {
        flight: u64,
        tried: u64,
    },
    Held(Turn),
    /// It goes back, and the engine may not be asked for it yet; after that it rests, if it is to.
    Settling {
        rest: bool,
    },
    /// Left to others after a long turn, until a flight that began later than this one is asked.
    Resting {
        since: u64,
    },
}

impl Slot {
    /// A slot that is free, and that nobody has asked for since.
    pub(super) const NEWLY_FREE: Self = Self::Free { tried: 0 };

    /// The first ticket that has yet to have its chance at this slot, if that may come by itself.
    pub(super) const fn open_from(&self) -> Option<u64> {
        match self {
            Self::Free { tried } | Self::Asked { tried, .. } => Some(*tried),
            Self::Settling { rest: false } => Some(0),
            Self::Settling { rest: true } | Self::Held(_) | Self::Resting { .. } => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Turn {
    pub(super) id: u64,
    pub(super) grant: Grant,
    pub(super) since: Moment,
    pub(super) hand_overs: u32,
}

impl Turn {
    pub(super) fn is_within(&self, bound: HandOverBound, now: Moment) -> bool {
        self.hand_overs < bound.count && now.since(self.since) < bound.time
    }
}

#[derive(Debug)]
pub(super) struct Waiter<W> {
    pub(super) ticket: u64,
    pub(super) tries: bool,
    pub(super) to: W,
}

/// A request to the engine.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) id: u64,
    pub(super) later: bool,
    pub(super) asked: Option<Asked>,
}

/// What was on the list when the engine asked for it.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// The first ticket of those who were not there yet.
    pub(super) before: u64,
    pub(super) slots: Vec<u32>,
    pub(super) want: usize,
}

impl Asked {
    /// How many of the candidates were tried: the engine stops at the last that it needs.
    pub(super) fn tried(&self, granted: &[(usize, Grant)]) -> usize {
        if granted.len() < self.want {
            return self.slots.len();
        }
        granted.iter().map(|(candidate, _)| candidate + 1).max().unwrap_or(0)
    }
}
