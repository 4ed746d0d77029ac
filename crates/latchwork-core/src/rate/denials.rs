//! Denials that are still good: a key that is over its limit is not asked for again until that can help.

use super::{Charged, MAX_QUOTAS, Quotas, RateRow, recent::Recent};
use crate::clock::Moment;

/// What is known of the rows that were denied last. A theoretical arrival time only ever grows, so what denied a charge
/// goes on denying it until it has passed, whoever else charges the row meanwhile. Allowed charges are not kept.
#[derive(Debug)]
pub(super) struct Denials {
    rows: Recent<Denial>,
}

#[derive(Clone, Copy, Debug)]
struct Denial {
    arrivals: [u64; MAX_QUOTAS],
    /// When the charge that was denied can be allowed.
    until: u64,
}

impl Denials {
    /// Keeps at most so many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            rows: Recent::new(most),
        }
    }

    /// Keeps a denial until the moment when the charge can be allowed. That moment counts from when the question was
    /// sent, and so is never after the one that the database means.
    pub(super) fn keep(&self, row: RateRow, quotas: &Quotas, cost: u32, charged: &Charged) {
        let at = charged.at.as_nanos();
        let each = quotas.as_slice().iter().zip(charged.ahead);
        let allowed_in = each.map(|(quota, ahead)| quota.allowed_in(ahead, cost)).max();
        let denial = Denial {
            arrivals: charged.ahead.map(|ahead| at.saturating_add(ahead)),
            until: at.saturating_add(allowed_in.unwrap_or_default()),
        };
        self.rows.part(row).put(row, denial, |denial| denial.until > at);
    }

    /// Denies what is known to be denied. A cheaper charge may be allowed where a dear one was denied.
    pub(super) fn deny(
        &self,
        row: RateRow,
        quotas: &Quotas,
        cost: u32,
        clock: impl FnOnce() -> Moment,
    ) -> Option<Charged> {
        let mut part = self.rows.part(row);
        let denial = *part.get(row)?;
        // Most rows are not here, and a clock is not free.
        let at = clock();
        let now = at.as_nanos();
        if denial.until <= now {
            part.remove(row);
            return None;
        }
        drop(part);
        let ahead = denial.arrivals.map(|arrival| arrival.saturating_sub(now));
        let charged = super::local::charge(quotas, ahead, cost, at);
        (!charged.allowed).then_some(charged)
    }

    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}
