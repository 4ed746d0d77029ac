//! Group commit: one batch carries all that has collected while the last one was on the wire.
//!
//! Unlocks go before tries, so that a key that was released and is wanted again is free by then. Each statement has its
//! own Sync, so that an error in one skips no other, and all are written at once.

use std::{collections::HashSet, future::Future, pin::Pin, sync::Arc};

use latchwork_core::{
    Key, Mode,
    engine::{Candidates, EngineError, Grant, ReleaseRequest, SlotsRequest},
};
use tokio_postgres::{Client, Error as DriverError, Row};

use crate::{
    error::StatementError,
    inbox::Ask,
    link::{End, Link},
    room::Room,
    sql::{self, Kind, Number},
    sqlstate::is_cancelled,
    statements::Statements,
    wait::Wait,
};

/// The most keys in one statement.
const MAX_KEYS: usize = 512;

/// What the driver brings for one statement.
pub(crate) type Answer = Result<Vec<Row>, DriverError>;

/// One statement on its way.
pub(crate) type Call = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// A batch, from its making to its answers.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    unlocks: Vec<Unlocks>,
    tries: Vec<Tries>,
    slots: Vec<SomeOf>,
    /// Releases whose statement failed before it came to them.
    again: Vec<ReleaseRequest>,
    /// Locks that may be granted and are not counted as held yet.
    reserved: usize,
}

/// What is left of a batch.
#[derive(Debug)]
pub(crate) struct Rest {
    /// Waits that found their key held.
    pub(crate) waits: Vec<Wait>,
    /// Releases that must be sent again.
    pub(crate) releases: Vec<ReleaseRequest>,
}

/// One statement that releases.
#[derive(Debug)]
struct Unlocks {
    kind: Kind,
    releases: Vec<ReleaseRequest>,
    was_held: Vec<bool>,
}

/// One statement that tries.
#[derive(Debug)]
struct Tries {
    kind: Kind,
    asks: Vec<Ask>,
    granted: Vec<bool>,
    error: Option<EngineError>,
}

/// One statement that takes some of several keys.
#[derive(Debug)]
struct SomeOf {
    request: SlotsRequest,
    keys: Vec<Key>,
    want: usize,
    taken: Vec<usize>,
    error: Option<EngineError>,
}

impl Batch {
    /// Sorts requests into statements. What there is no room for is answered now, and so are releases of locks that
    /// went with an earlier session than `session`. `releases` are taken last: a slot that was given up before its pool
    /// was asked for candidates goes before them.
    pub(crate) fn new(
        asks: Vec<Ask>,
        slots: Vec<SlotsRequest>,
        releases: impl FnOnce() -> Vec<ReleaseRequest>,
        session: u64,
        room: &Room,
    ) -> Self {
        let mut batch = Self::default();
        let slots: Vec<_> = slots
            .into_iter()
            .map(|request| (request.reply.candidates(), request))
            .collect();
        for release in releases() {
            if release.grant.session().id() == session {
                batch.add_release(release);
            } else {
                release.reply.send(Ok(false));
            }
        }
        // What is released in this batch is released before anything is asked for, so its room can be had at once.
        let mut freed = batch.released();
        let fits = batch.reserve(asks.len(), &mut freed, room);
        for (at, ask) in asks.into_iter().enumerate() {
            if at < fits {
                batch.add_ask(ask);
            } else {
                ask.answer(Err(too_many(room)));
            }
        }
        for (candidates, request) in slots {
            let want = batch.reserve(candidates.want, &mut freed, room);
            batch.add_slots(request, candidates, want, room);
        }
        batch
    }

    /// Takes room for up to `wanted` locks, from what there is or is `freed` in this batch. Returns for how many.
    fn reserve(&mut self, wanted: usize, freed: &mut usize, room: &Room) -> usize {
        let taken = room.take(wanted);
        self.reserved += taken;
        let borrowed = (*freed).min(wanted - taken);
        *freed -= borrowed;
        taken + borrowed
    }

    fn add_release(&mut self, release: ReleaseRequest) {
        let kind = Kind::of(release.key, release.mode);
        match self
            .unlocks
            .iter_mut()
            .find(|unlocks| unlocks.kind == kind && unlocks.releases.len() < MAX_KEYS)
        {
            Some(unlocks) => unlocks.releases.push(release),
            None => self.unlocks.push(Unlocks {
                kind,
                releases: vec![release],
                was_held: Vec::new(),
            }),
        }
    }

    fn add_ask(&mut self, ask: Ask) {
        let kind = Kind::of(ask.key(), ask.mode());
        match self
            .tries
            .iter_mut()
            .find(|tries| tries.kind == kind && tries.asks.len() < MAX_KEYS)
        {
            Some(tries) => tries.asks.push(ask),
            None => self.tries.push(Tries {
                kind,
                asks: vec![ask],
                granted: Vec::new(),
                error: None,
            }),
        }
    }

    fn add_slots(&mut self, request: SlotsRequest, candidates: Candidates, want: usize, room: &Room) {
        let (keys, wanted) = (candidates.keys, candidates.want);
        if want > 0 {
            self.slots.push(SomeOf {
                request,
                keys,
                want,
                taken: Vec::new(),
                error: None,
            });
        } else {
            let answer = if wanted > 0 {
                Err(too_many(room))
            } else {
                Ok(Vec::new())
            };
            request.reply.send(answer);
        }
    }

    /// Counts the answers to [`Batch::calls`]. Nobody is told anything yet.
    pub(crate) async fn judge(&mut self, link: &mut Link, answers: Vec<Answer>) -> Result<(), End> {
        let mut answers = answers.into_iter();
        let mut failed = None;
        for unlocks in &mut self.unlocks {
            match next(&mut answers)? {
                Ok(rows) => {
                    let keys = unlocks.releases.iter().map(|release| release.key);
                    unlocks.was_held = flags(&rows, unlocks.kind, keys)?;
                }
                // Which of them were released meanwhile is for the reconciliation to say.
                Err(error) => failed = Some(error.into_engine()),
            }
        }
        for tries in &mut self.tries {
            match next(&mut answers)? {
                Ok(rows) => tries.granted = flags(&rows, tries.kind, tries.asks.iter().map(Ask::key))?,
                Err(error) => tries.error = Some(error.into_engine()),
            }
            failed = failed.or_else(|| tries.error.clone());
        }
        for some in &mut self.slots {
            match next(&mut answers)? {
                Ok(rows) => some.taken = rows.iter().filter_map(place).collect(),
                Err(error) => some.error = Some(error.into_engine()),
            }
            failed = failed.or_else(|| some.error.clone());
        }
        if let Some(error) = failed {
            self.reconcile(link, &error).await?;
        } else {
            link.held = (link.held + self.granted()).saturating_sub(self.released());
        }
        if self.unlocks.iter().any(|unlocks| unlocks.was_held.contains(&false)) {
            return Err(End::Inconsistent("it did not hold a lock that it was granted"));
        }
        link.settle().await
    }

    /// Finds out what a statement that failed half-way has done: session locks survive its rollback.
    async fn reconcile(&mut self, link: &mut Link, error: &EngineError) -> Result<(), End> {
        let own = Self::own(link).await?;
        let unsure = self.unsure(&own);
        let own = if unsure.is_empty() {
            own
        } else {
            Self::clear(link, unsure.clone()).await?
        };
        link.held = own.len();
        for unlocks in &mut self.unlocks {
            if unlocks.was_held.is_empty() {
                let still = |release: &mut ReleaseRequest| own.contains(&(release.key, release.mode));
                self.again.extend(unlocks.releases.extract_if(.., still));
                unlocks.was_held = vec![true; unlocks.releases.len()];
            }
        }
        for tries in &mut self.tries {
            if tries.asks.iter().any(|ask| unsure.contains(&(ask.key(), ask.mode()))) {
                tries.error.get_or_insert_with(|| error.clone());
            }
            if tries.error.is_some() {
                tries.granted = tries
                    .asks
                    .iter()
                    .map(|ask| own.contains(&(ask.key(), ask.mode())))
                    .collect();
            }
        }
        for some in &mut self.slots {
            let lost = |key: &Key| unsure.contains(&(*key, Mode::Exclusive));
            if some.keys.iter().any(lost) {
                some.error.get_or_insert_with(|| error.clone());
            }
            if some.error.is_some() {
                let taken = (0..)
                    .zip(&some.keys)
                    .filter(|(_, key)| own.contains(&(**key, Mode::Exclusive)));
                some.taken = taken.map(|(at, _)| at).collect();
            }
        }
        Ok(())
    }

    async fn own(link: &mut Link) -> Result<HashSet<(Key, Mode)>, End> {
        Ok(link.own_locks().await?.into_iter().collect())
    }

    /// Lists what is held, and was to be released by a statement that failed, and was then asked for anew in this very
    /// batch. It may be held once, or twice: `pg_locks` shows no count.
    fn unsure(&self, own: &HashSet<(Key, Mode)>) -> Vec<(Key, Mode)> {
        let failed = self.unlocks.iter().filter(|unlocks| unlocks.was_held.is_empty());
        let released = failed
            .flat_map(|unlocks| &unlocks.releases)
            .map(|release| (release.key, release.mode));
        let mut unsure: Vec<_> = released.filter(|lock| own.contains(lock)).collect();
        if !unsure.is_empty() {
            let tried = self
                .tries
                .iter()
                .flat_map(|tries| &tries.asks)
                .map(|ask| (ask.key(), ask.mode()));
            let slots = self
                .slots
                .iter()
                .flat_map(|some| &some.keys)
                .map(|key| (*key, Mode::Exclusive));
            let asked: HashSet<_> = tried.chain(slots).collect();
            unsure.retain(|lock| asked.contains(lock));
        }
        unsure
    }

    /// Releases locks until none is left of them, and returns what is held then. An unlock that is cancelled may have
    /// happened all the same.
    async fn clear(link: &mut Link, mut locks: Vec<(Key, Mode)>) -> Result<HashSet<(Key, Mode)>, End> {
        loop {
            for (key, mode) in &locks {
                let (client, unlock) = (Arc::clone(&link.client), sql::unlock(*key, *mode));
                match link.call(async move { client.batch_execute(&unlock).await }).await? {
                    Err(error) if !is_cancelled(&error) => {
                        return Err(End::Closed(Some(error)));
                    }
                    _ => {}
                }
            }
            let own = Self::own(link).await?;
            locks.retain(|lock| own.contains(lock));
            if locks.is_empty() {
                return Ok(own);
            }
        }
    }

    fn granted(&self) -> usize {
        let tries = self
            .tries
            .iter()
            .map(|tries| tries.granted.iter().filter(|granted| **granted).count());
        tries.sum::<usize>() + self.slots.iter().map(|some| some.taken.len()).sum::<usize>()
    }

    fn released(&self) -> usize {
        self.unlocks.iter().map(|unlocks| unlocks.releases.len()).sum()
    }

    /// Tells everybody whose request is done.
    pub(crate) fn answer(self, grant: &Grant, room: &Room) -> Rest {
        room.give_back((self.reserved + self.released()).saturating_sub(self.granted()));
        let mut still_waiting = Vec::new();
        for Unlocks { releases, was_held, .. } in self.unlocks {
            for (release, was_held) in releases.into_iter().zip(was_held) {
                release.reply.send(Ok(was_held));
            }
        }
        for Tries {
            asks, granted, error, ..
        } in self.tries
        {
            for (ask, granted) in asks.into_iter().zip(granted) {
                match (granted, &error, ask) {
                    (true, _, ask) => ask.answer(Ok(Some(grant.clone()))),
                    (false, Some(error), ask) => ask.answer(Err(error.clone())),
                    (false, None, Ask::Wait(wait)) => still_waiting.push(wait),
                    (false, None, ask) => ask.answer(Ok(None)),
                }
            }
        }
        for SomeOf {
            request, taken, error, ..
        } in self.slots
        {
            let answer = match error {
                Some(error) if taken.is_empty() => Err(error),
                _ => Ok(taken.into_iter().map(|at| (at, grant.clone())).collect()),
            };
            request.reply.send(answer);
        }
        Rest {
            waits: still_waiting,
            releases: self.again,
        }
    }

    /// Tells everybody that the connection has ended.
    pub(crate) fn fail(self, error: &EngineError, room: &Room) {
        room.give_back(self.reserved);
        for Unlocks { releases, was_held, .. } in self.unlocks {
            let mut was_held = was_held.into_iter();
            for release in releases {
                release.reply.send(was_held.next().ok_or_else(|| error.clone()));
            }
        }
        for release in self.again {
            release.reply.send(Err(error.clone()));
        }
        for ask in self.tries.into_iter().flat_map(|tries| tries.asks) {
            ask.answer(Err(error.clone()));
        }
        for some in self.slots {
            some.request.reply.send(Err(error.clone()));
        }
    }

    /// The statements, in the order in which they are to be sent.
    pub(crate) async fn calls(&self, link: &mut Link, statements: &mut Statements) -> Result<Vec<Call>, End> {
        let mut calls = Vec::new();
        for unlocks in &self.unlocks {
            let keys = Keys::new(unlocks.kind, unlocks.releases.iter().map(|release| release.key));
            let number = Number::of(unlocks.releases.len());
            let statement = statements.unlock(link, unlocks.kind, number).await?;
            calls.push(keys.call(&link.client, statement, None));
        }
        for tries in &self.tries {
            let keys = Keys::new(tries.kind, tries.asks.iter().map(Ask::key));
            let number = Number::of(tries.asks.len());
            let statement = statements.try_lock(link, tries.kind, number).await?;
            calls.push(keys.call(&link.client, statement, None));
        }
        for some in &self.slots {
            let kind = some
                .keys
                .first()
                .map_or(Kind::ALL[0], |key| Kind::of(*key, Mode::Exclusive));
            let keys = Keys::new(kind, some.keys.iter().copied());
            let want = i32::try_from(some.want).unwrap_or(i32::MAX);
            let statement = statements.take_some(link, kind).await?;
            calls.push(keys.call(&link.client, statement, Some(want)));
        }
        Ok(calls)
    }
}

/// Keys as the arrays that a statement takes; a lock statement for one key takes it as it is.
enum Keys {
    Bigints(Vec<i64>),
    Pairs(Vec<i32>, Vec<i32>),
}

impl Keys {
    fn new(kind: Kind, keys: impl Iterator<Item = Key>) -> Self {
        if kind.is_pair() {
            let (firsts, seconds) = keys.filter_map(Key::as_pair).unzip();
            Self::Pairs(firsts, seconds)
        } else {
            Self::Bigints(keys.filter_map(Key::as_bigint).collect())
        }
    }

    fn call(self, client: &Arc<Client>, statement: tokio_postgres::Statement, want: Option<i32>) -> Call {
        let client = Arc::clone(client);
        Box::pin(async move {
            match (&self, &want) {
                (Self::Bigints(keys), None) => match keys.as_slice() {
                    [key] => client.query(&statement, &[key]).await,
                    keys => client.query(&statement, &[&keys]).await,
                },
                (Self::Bigints(keys), Some(want)) => client.query(&statement, &[keys, want]).await,
                (Self::Pairs(firsts, seconds), None) => match (firsts.as_slice(), seconds.as_slice()) {
                    ([first], [second]) => client.query(&statement, &[first, second]).await,
                    (firsts, seconds) => client.query(&statement, &[&firsts, &seconds]).await,
                },
                (Self::Pairs(firsts, seconds), Some(want)) => client.query(&statement, &[firsts, seconds, want]).await,
            }
        })
    }
}

/// The next statement's answer; an answer that only says that the connection has ended ends it here.
fn next(answers: &mut impl Iterator<Item = Answer>) -> Result<Result<Vec<Row>, StatementError>, End> {
    match answers.next() {
        Some(Ok(rows)) => Ok(Ok(rows)),
        Some(Err(error)) if error.as_db_error().is_some() => Ok(Err(StatementError::from_driver(error))),
        Some(Err(error)) => Err(End::Closed(Some(error))),
        None => Err(End::Inconsistent("a statement was not answered")),
    }
}

/// The one row of a statement over keys, as an answer for each.
fn flags(rows: &[Row], kind: Kind, keys: impl ExactSizeIterator<Item = Key>) -> Result<Vec<bool>, End> {
    let wanted = keys.len();
    let row = rows
        .first()
        .ok_or(End::Inconsistent("a statement over keys had no row"))?;
    let flags: Vec<bool> = if kind.lists_refused(Number::of(wanted)) {
        let refused: HashSet<i64> = row
            .get::<_, Option<Vec<i64>>>(0)
            .unwrap_or_default()
            .into_iter()
            .collect();
        keys.map(|key| key.as_bigint().is_some_and(|key| !refused.contains(&key)))
            .collect()
    } else {
        row.get::<_, Option<_>>(0).unwrap_or_default()
    };
    // Whoever has no answer would be told that the connection was lost, and might hold the key.
    if flags.len() == wanted {
        Ok(flags)
    } else {
        Err(End::Inconsistent("a key was not answered for"))
    }
}

/// A row of a statement that takes some keys; the server counts from 1.
fn place(row: &Row) -> Option<usize> {
    let place: i32 = row.get(0);
    usize::try_from(place).ok()?.checked_sub(1)
}

fn too_many(room: &Room) -> EngineError {
    StatementError::TooManyHeld { held: room.taken() }.into_engine()
}
