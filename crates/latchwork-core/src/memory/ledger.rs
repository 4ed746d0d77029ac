//! The ledger of ticks in memory.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::SystemTime,
};

use crate::{
    WallClock,
    engine::LedgerRequest,
    key::Key,
    once::{LastRun, RunEnd, TickAnswer, TickClaim},
};

#[derive(Debug, Default)]
pub(super) struct Ledger {
    clock: WallClock,
    rows: HashMap<Key, Row>,
}

#[derive(Debug)]
struct Row {
    number: i64,
    run: LastRun,
}

impl Ledger {
    pub(super) fn on_clock(clock: WallClock) -> Self {
        let rows = HashMap::new();
        Self { clock, rows }
    }

    /// Answers a request of the session with this identity.
    pub(super) fn take(&mut self, request: LedgerRequest, identity: &str) {
        match request {
            LedgerRequest::Claim(request) => {
                let answer = self.claim(&request.claim, identity);
                request.reply.send(Ok(answer));
            }
            LedgerRequest::Record(request) => {
                let recorded = self.record(request.key, request.number, request.end);
                request.reply.send(Ok(recorded));
            }
            LedgerRequest::Read(request) => {
                let run = self.rows.get(&request.key).map(|row| row.run.clone());
                request.reply.send(Ok(run));
            }
        }
    }

    fn claim(&mut self, claim: &TickClaim, identity: &str) -> TickAnswer {
        let now = self.clock.now();
        let ahead = claim.tick().duration_since(now).unwrap_or_default();
        if ahead > claim.allowed() {
            return TickAnswer::Ahead { by: ahead };
        }
        match self.rows.entry(claim.key()) {
            Entry::Vacant(entry) => {
                entry.insert(Row::of(claim, identity, now));
            }
            Entry::Occupied(mut entry) => {
                let last = entry.get();
                let again = last.run.tick == claim.tick() && last.number == claim.number();
                if claim.end() == Some(RunEnd::Enrolled) || !(again || last.run.tick < claim.tick()) {
                    return TickAnswer::Taken;
                }
                entry.insert(Row::of(claim, identity, now));
            }
        }
        TickAnswer::Claimed
    }

    fn record(&mut self, key: Key, number: i64, end: RunEnd) -> bool {
        let now = self.clock.now();
        let Some(row) = self.rows.get_mut(&key).filter(|row| row.number == number) else {
            return false;
        };
        row.run.ended_at = Some(now);
        row.run.end = Some(end);
        true
    }
}

impl Row {
    fn of(claim: &TickClaim, identity: &str, now: SystemTime) -> Self {
        let mut run = LastRun::new(claim.name().to_owned(), claim.tick(), identity.to_owned(), now);
        run.end = claim.end();
        if run.end == Some(RunEnd::Enrolled) {
            run.ended_at = Some(now);
        }
        Self {
            number: claim.number(),
            run,
        }
    }
}
