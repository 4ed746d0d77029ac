//! The limiter inside the process: the engine in memory, and what bridges an outage.

use super::{Charged, MAX_QUOTAS, Quotas, RateRow, recent::Recent};
use crate::clock::Moment;

/// Theoretical arrival times of the rows that were charged last.
#[derive(Debug)]
pub(super) struct LocalLimiter {
    rows: Recent<[u64; MAX_QUOTAS]>,
}

impl LocalLimiter {
    /// Keeps at most so many rows.
    pub(super) fn new(most: usize) -> Self {
        Self {
            rows: Recent::new(most),
        }
    }

    /// Decides, and charges if that is allowed.
    pub(super) fn charge(&self, row: RateRow, quotas: &Quotas, cost: u32, at: Moment) -> Charged {
        let now = at.as_nanos();
        let mut part = self.rows.part(row);
        let known = part.get(row).copied().unwrap_or_default();
        let mut charged = charge(quotas, known.map(|arrival| arrival.saturating_sub(now)), cost, at);
        if charged.allowed && cost > 0 {
            let arrivals = charged.ahead.map(|ahead| now.saturating_add(ahead));
            part.put(row, arrivals, |arrivals| arrivals.iter().any(|arrival| *arrival > now));
        }
        // Another thread may have read the clock later and been here first.
        for (ahead, quota) in charged.ahead.iter_mut().zip(quotas.as_slice()) {
            *ahead = (*ahead).min(quota.tolerance());
        }
        charged
    }

    /// How many rows are kept.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}

/// The whole algorithm, for quotas whose theoretical arrival times lie so far `ahead` of the present.
pub(super) fn charge(quotas: &Quotas, mut ahead: [u64; MAX_QUOTAS], cost: u32, at: Moment) -> Charged {
    let each = quotas.as_slice().iter();
    let allowed = each.clone().zip(ahead).all(|(quota, ahead)| quota.allows(ahead, cost));
    if allowed {
        for (quota, ahead) in each.zip(&mut ahead) {
            *ahead += quota.step(cost);
        }
    }
    Charged::new(allowed, ahead, at)
}
