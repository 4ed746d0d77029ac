//! A database that keeps count of its transactions, and answers as a test wants.

use std::{
    collections::{HashMap, HashSet},
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use latchwork_core::{Key, Mode};
use latchwork_http::{
    TxProvider,
    bytes::Bytes,
    tx::{SqlValue, TxError, TxRequest, TxRow},
};
use tokio::{task::yield_now, time::sleep};

use crate::http::in_time;

/// What a database says of a beginning or an end.
#[expect(clippy::exhaustive_enums, reason = "a test names what it wants")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Says {
    /// It does as it was asked.
    #[default]
    Yes,
    /// Yes, after a second.
    Late,
    /// [`TxError::Unavailable`].
    Unavailable,
    /// [`TxError::Aborted`].
    Aborted,
    /// [`TxError::OutcomeUnknown`].
    Unknown,
    /// [`TxError::Setup`].
    NotSetUp,
    /// [`TxError::Other`].
    Other,
    /// No answer ever.
    Nothing,
}

impl Says {
    async fn answer(self) -> Result<(), TxError> {
        // Every answer takes a while, so that whoever waits for it can leave.
        for _ in 0..3 {
            yield_now().await;
        }
        match self {
            Self::Yes => Ok(()),
            Self::Late => {
                sleep(Duration::from_secs(1)).await;
                Ok(())
            }
            Self::Unavailable => Err(TxError::unavailable("as the test wants")),
            Self::Aborted => Err(TxError::aborted("as the test wants")),
            Self::Unknown => Err(TxError::outcome_unknown("as the test wants")),
            Self::NotSetUp => Err(TxError::setup("as the test wants")),
            Self::Other => Err(TxError::other("as the test wants")),
            Self::Nothing => pending().await,
        }
    }
}

/// How many transactions there were, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Not ended yet.
    pub open: usize,
    /// Committed.
    pub committed: usize,
    /// Rolled back.
    pub rolled_back: usize,
    /// Neither; its connection was closed.
    pub closed: usize,
}

impl Count {
    /// No transaction.
    pub const NONE: Self = Self {
        open: 0,
        committed: 0,
        rolled_back: 0,
        closed: 0,
    };
    /// One, committed.
    pub const COMMITTED: Self = Self {
        committed: 1,
        ..Self::NONE
    };
    /// One, rolled back.
    pub const ROLLED_BACK: Self = Self {
        rolled_back: 1,
        ..Self::NONE
    };
}

/// A database in which there are locks, idempotency records, and [`WORK`].
#[derive(Clone, Debug, Default)]
pub struct Database(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    count: Count,
    asked: usize,
    locked: HashSet<Key>,
    records: HashMap<Bytes, TxRow>,
    work: usize,
    begin: Says,
    commit: Says,
    rollback: Says,
}

impl Database {
    /// Sets what BEGIN is answered.
    #[must_use]
    pub fn begins(self, says: Says) -> Self {
        self.state().begin = says;
        self
    }

    /// Sets what COMMIT is answered.
    #[must_use]
    pub fn commits(self, says: Says) -> Self {
        self.state().commit = says;
        self
    }

    /// Sets what ROLLBACK is answered.
    #[must_use]
    pub fn rolls_back(self, says: Says) -> Self {
        self.state().rollback = says;
        self
    }

    /// The transactions there were.
    #[must_use]
    pub fn count(&self) -> Count {
        self.state().count
    }

    /// How many transactions were asked for.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.state().asked
    }

    /// How often [`WORK`] was committed.
    #[must_use]
    pub fn work(&self) -> usize {
        self.state().work
    }

    /// Waits until no transaction is open.
    pub async fn settled(&self) -> Count {
        in_time(async {
            while self.count().open > 0 {
                yield_now().await;
            }
        })
        .await;
        self.count()
    }

    /// No code of tests runs under the mutex, so a panic elsewhere leaves nothing half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a handler does in its transaction.
pub const WORK: &str = "work";

impl TxProvider for Database {
    type Tx = FakeTx;

    async fn begin(&self, request: TxRequest) -> Result<Option<FakeTx>, TxError> {
        let says = {
            let mut state = self.state();
            state.asked += 1;
            state.begin
        };
        says.answer().await?;
        let mut state = self.state();
        let mut keys = Vec::new();
        // Nobody here has a key shared that another wants for himself.
        if request.mode() == Mode::Exclusive {
            if !state.locked.insert(request.key()) {
                return Ok(None);
            }
            keys.push(request.key());
        }
        state.count.open += 1;
        Ok(Some(FakeTx {
            database: self.clone(),
            keys,
            records: HashMap::new(),
            work: 0,
            ended: false,
        }))
    }

    /// Knows the statements over locks and records, and [`WORK`]; any other without values answers with itself.
    async fn query<'a>(tx: &'a mut FakeTx, sql: &'a str, values: &'a [SqlValue<'a>]) -> Result<Option<TxRow>, TxError> {
        yield_now().await;
        let mut state = tx.database.state();
        match values {
            [] if sql == WORK => tx.work += 1,
            [] if sql.contains(TRY) => {
                let (_, key) = sql.split_once(TRY).unwrap_or_default();
                let key = key.split_once('\'').and_then(|(key, _)| key.parse().ok());
                let key = Key::bigint(key.expect("a lock on one number"));
                let granted = state.locked.insert(key);
                if granted {
                    tx.keys.push(key);
                }
                let answer = if granted { "granted" } else { "busy" };
                return Ok(Some(vec![Some(answer.into())]));
            }
            [SqlValue::Bytes(id)] if sql.starts_with("SELECT fingerprint") => {
                return Ok(state.records.get(*id).cloned());
            }
            [SqlValue::Bytes(id)] if sql.starts_with("DELETE") => {
                tx.records.insert(Bytes::copy_from_slice(id), None);
            }
            [
                SqlValue::Bytes(id),
                SqlValue::Bytes(fingerprint),
                SqlValue::Text(of),
                SqlValue::Int(status),
                SqlValue::Bytes(headers),
                SqlValue::Bytes(body),
                _,
            ] if sql.starts_with("INSERT") => {
                let bytes = |bytes: &[u8]| Some(Bytes::copy_from_slice(bytes));
                let status = status.to_string();
                let row = [*fingerprint, of.as_bytes(), status.as_bytes(), *headers, *body].map(bytes);
                tx.records.insert(Bytes::copy_from_slice(id), Some(row.into()));
            }
            [] => return Ok(Some(vec![Some(Bytes::copy_from_slice(sql.as_bytes()))])),
            _ => panic!("an unknown statement: {sql}"),
        }
        Ok(None)
    }

    async fn commit(mut tx: FakeTx) -> Result<(), TxError> {
        let says = tx.database.state().commit;
        let answer = says.answer().await;
        tx.ends(|tx, state| {
            if answer.is_err() {
                state.count.rolled_back += 1;
                return;
            }
            state.count.committed += 1;
            state.work += tx.work;
            for (id, record) in tx.records.drain() {
                match record {
                    Some(row) => state.records.insert(id, row),
                    None => state.records.remove(&id),
                };
            }
        });
        answer
    }

    async fn rollback(mut tx: FakeTx) -> Result<(), TxError> {
        let says = tx.database.state().rollback;
        says.answer().await?;
        tx.ends(|_, state| state.count.rolled_back += 1);
        Ok(())
    }
}

/// A transaction that counts as closed when it is dropped before its end.
#[derive(Debug)]
pub struct FakeTx {
    database: Database,
    keys: Vec<Key>,
    /// What is stored at the commit; `None` for what is deleted.
    records: HashMap<Bytes, Option<TxRow>>,
    work: usize,
    ended: bool,
}

impl FakeTx {
    fn ends(&mut self, end: impl FnOnce(&mut Self, &mut State)) {
        let database = self.database.clone();
        let mut state = database.state();
        state.count.open -= 1;
        state.locked.retain(|key| !self.keys.contains(key));
        end(self, &mut state);
        self.ended = true;
    }
}

impl Drop for FakeTx {
    fn drop(&mut self) {
        if !self.ended {
            self.ends(|_, state| state.count.closed += 1);
        }
    }
}

const TRY: &str = "pg_try_advisory_xact_lock('";
