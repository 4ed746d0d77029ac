//! What goes into one statement: each row once, and the requests for it in the order in which they came.

use std::collections::{HashMap, VecDeque, hash_map::Entry};

use foldhash::fast::RandomState;
use latchwork_core::{
    Moment,
    engine::EngineError,
    rate::{ChargeReply, ChargeRequest, Charged, MAX_QUOTAS, Quotas, RateRow},
};
use tokio_postgres::{Error as DriverError, Row};

/// The most rows of one batch.
const MOST_ROWS: usize = 512;
/// The most requests of one batch.
const MOST_REQUESTS: usize = 4_096;

/// Requests for one row that cost the same.
#[derive(Debug)]
struct Group {
    row: RateRow,
    quotas: Quotas,
    cost: u32,
    wanted: usize,
    first: Option<ChargeReply>,
    /// Most rows have one request, which needs no room of its own.
    others: Vec<ChargeReply>,
}

/// Requests that are decided at the same moment, by one statement for each number of quotas.
#[derive(Default)]
pub(super) struct Batch {
    groups: Vec<Group>,
}

impl Batch {
    /// Takes out of a queue what one batch can carry. Requests for a row that cost something else than the first wait for
    /// the next batch, and so do those behind them: the server counts how often the same charge fits, and a row's
    /// requests are decided in order.
    pub(super) fn take(queue: &mut VecDeque<ChargeRequest>) -> Self {
        let room = queue.len().min(MOST_ROWS);
        let mut groups: Vec<Group> = Vec::with_capacity(room);
        let mut places: HashMap<RateRow, Option<usize>, RandomState> =
            HashMap::with_capacity_and_hasher(room, RandomState::default());
        let mut later = Vec::new();
        let mut taken = 0;
        while taken < MOST_REQUESTS
            && groups.len() < MOST_ROWS
            && let Some(request) = queue.pop_front()
        {
            if !request.reply.is_wanted() {
                continue;
            }
            taken += 1;
            match places.entry(request.row) {
                Entry::Vacant(place) => {
                    place.insert(Some(groups.len()));
                    groups.push(Group::of(request));
                }
                Entry::Occupied(mut place) => match place.get().map(|at| &mut groups[at]) {
                    Some(group) if group.cost == request.cost => group.add(request.reply),
                    _ => {
                        place.insert(None);
                        later.push(request);
                    }
                },
            }
        }
        for request in later.into_iter().rev() {
            queue.push_front(request);
        }
        Self { groups }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The parts that are a statement each.
    pub(super) fn parts(self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let room = self.groups.len();
        for group in self.groups {
            let quotas = group.quotas.len();
            match parts.iter_mut().find(|part| part.quotas == quotas) {
                Some(part) => part.groups.push(group),
                None => {
                    let mut groups = Vec::with_capacity(room);
                    groups.push(group);
                    parts.push(Part { quotas, groups });
                }
            }
        }
        for part in &mut parts {
            part.groups.sort_unstable_by_key(|group| group.row);
        }
        parts
    }
}

impl Group {
    fn of(request: ChargeRequest) -> Self {
        let ChargeRequest {
            row,
            quotas,
            cost,
            reply,
            ..
        } = request;
        Self {
            row,
            quotas,
            cost,
            wanted: 1,
            first: Some(reply),
            others: Vec::new(),
        }
    }

    fn add(&mut self, reply: ChargeReply) {
        self.wanted += 1;
        self.others.push(reply);
    }

    /// The replies, in the order of the requests.
    fn replies(self) -> impl Iterator<Item = ChargeReply> {
        self.first.into_iter().chain(self.others)
    }

    /// How many charges are wanted. Those of nothing are not.
    const fn wanted(&self) -> usize {
        if self.cost == 0 { 0 } else { self.wanted }
    }

    /// How many of them fit into a full burst.
    fn at_first(&self) -> usize {
        let fit = self.quotas.highest_cost() / self.cost.max(1);
        self.wanted().min(fit as usize)
    }
}

/// The groups of a batch that have the same number of quotas, in the order of their rows.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) quotas: usize,
    groups: Vec<Group>,
}

/// The arguments of a statement, one array for each parameter.
pub(super) type Arguments = Vec<Vec<i64>>;

impl Part {
    /// One charge of one unit, for which nobody waits here.
    pub(super) fn of_one(row: RateRow, quotas: Quotas) -> Self {
        Self {
            quotas: quotas.len(),
            groups: vec![Group {
                row,
                quotas,
                cost: 1,
                wanted: 1,
                first: None,
                others: Vec::new(),
            }],
        }
    }

    pub(super) fn arguments(&self) -> Arguments {
        let each = |value: fn(&Group) -> i64| self.groups.iter().map(value).collect();
        let mut arguments = vec![
            each(|group| group.row.key()),
            each(|group| group.row.quotas()),
            each(|group| count(group.wanted())),
            each(|group| count(group.at_first())),
        ];
        for place in 0..self.quotas {
            let quota = |group: &Group| group.quotas.as_slice()[place];
            // Both are ten years at most.
            let nanos = |duration: std::time::Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
            let steps = self.groups.iter();
            arguments.push(
                steps
                    .map(|group| nanos(quota(group).interval()) * i64::from(group.cost.max(1)))
                    .collect(),
            );
            arguments.push(self.groups.iter().map(|group| nanos(quota(group).refill())).collect());
        }
        arguments
    }

    /// Answers all requests with what the statement has returned: a row for each group, in their order.
    pub(super) fn answer(self, rows: &[Row], at: Moment) {
        let mut outcomes = rows.iter().map_while(|row| Outcome::of(row).ok()).peekable();
        for group in self.groups {
            // A row that did not come back leaves its replies to their own drop.
            if let Some(outcome) = outcomes.next_if(|outcome| outcome.is_for(group.row)) {
                group.answer(outcome, at);
            }
        }
    }

    /// Whether any charge was allowed.
    pub(super) fn is_admitted(&self, rows: &[Row]) -> bool {
        rows.iter()
            .any(|row| Outcome::of(row).is_ok_and(|outcome| outcome.admitted != 0))
    }

    pub(super) fn fail(self, error: &EngineError) {
        for reply in self.groups.into_iter().flat_map(Group::replies) {
            reply.send(Err(error.clone()));
        }
    }
}

/// What the statement has returned for a row.
struct Outcome {
    key: i64,
    quotas: i64,
    /// How many charges were allowed, or, below zero, that the row is new.
    admitted: i32,
    /// How far each theoretical arrival time lies ahead after them, in nanoseconds.
    ahead: [u64; MAX_QUOTAS],
}

impl Outcome {
    fn of(row: &Row) -> Result<Self, DriverError> {
        let mut ahead = [0; MAX_QUOTAS];
        for (place, ahead) in (3..row.len()).zip(&mut ahead) {
            *ahead = u64::try_from(row.try_get::<_, i64>(place)?).unwrap_or_default();
        }
        Ok(Self {
            key: row.try_get(0)?,
            quotas: row.try_get(1)?,
            admitted: row.try_get(2)?,
            ahead,
        })
    }

    fn is_for(&self, row: RateRow) -> bool {
        (self.key, self.quotas) == (row.key(), row.quotas())
    }
}

impl Group {
    /// The first so many were allowed. Each is told how things were after it.
    fn answer(self, outcome: Outcome, at: Moment) {
        let first = self.at_first();
        let admitted = usize::try_from(outcome.admitted).unwrap_or(first);
        let (cost, quotas) = (self.cost, self.quotas);
        for (place, reply) in self.replies().enumerate() {
            let mut ahead = outcome.ahead;
            let behind = admitted.saturating_sub(place + 1) as u64;
            for (ahead, quota) in ahead.iter_mut().zip(quotas.as_slice()) {
                let step = (quota.interval().as_nanos() as u64).saturating_mul(u64::from(cost));
                *ahead = ahead.saturating_sub(step.saturating_mul(behind));
            }
            reply.send(Ok(Charged::new(cost == 0 || place < admitted, ahead, at)));
        }
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
