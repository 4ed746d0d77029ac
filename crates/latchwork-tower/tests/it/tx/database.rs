//! A database that keeps count of its transactions, and answers as a test wants.

use std::{
    collections::HashSet,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use latchwork_core::Key;
use latchwork_http::tx::{SqlValue, TxError, TxRequest, TxRow};
use latchwork_tower::TxProvider;
use tokio::{task::yield_now, time::sleep};

use crate::support::in_time;

/// What a database says of a beginning or an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Says {
    #[default]
    Yes,
    /// Yes, after a second.
    Late,
    Unavailable,
    Aborted,
    Unknown,
    Other,
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
            Self::Other => Err(TxError::other("as the test wants")),
            Self::Nothing => pending().await,
        }
    }
}

/// How many transactions there were, by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) open: usize,
    pub(crate) committed: usize,
    pub(crate) rolled_back: usize,
    /// Neither; its connection was closed.
    pub(crate) closed: usize,
}

impl Count {
    pub(crate) const COMMITTED: Self = Self {
        open: 0,
        committed: 1,
        rolled_back: 0,
        closed: 0,
    };
    pub(crate) const ROLLED_BACK: Self = Self {
        open: 0,
        committed: 0,
        rolled_back: 1,
        closed: 0,
    };
    pub(crate) const NONE: Self = Self {
        open: 0,
        committed: 0,
        rolled_back: 0,
        closed: 0,
    };
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Database(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    count: Count,
    asked: usize,
    locked: HashSet<Key>,
    begin: Says,
    commit: Says,
    rollback: Says,
}

impl Database {
    pub(crate) fn begins(self, says: Says) -> Self {
        self.0.lock().unwrap().begin = says;
        self
    }

    pub(crate) fn commits(self, says: Says) -> Self {
        self.0.lock().unwrap().commit = says;
        self
    }

    pub(crate) fn rolls_back(self, says: Says) -> Self {
        self.0.lock().unwrap().rollback = says;
        self
    }

    pub(crate) fn count(&self) -> Count {
        self.0.lock().unwrap().count
    }

    /// How many transactions were asked for.
    pub(crate) fn asked(&self) -> usize {
        self.0.lock().unwrap().asked
    }

    /// Waits until no transaction is open.
    pub(crate) async fn settled(&self) -> Count {
        in_time(async {
            while self.count().open > 0 {
                yield_now().await;
            }
        })
        .await;
        self.count()
    }
}

impl TxProvider for Database {
    type Tx = FakeTx;

    async fn begin(&self, request: TxRequest) -> Result<Option<FakeTx>, TxError> {
        let says = {
            let mut state = self.0.lock().unwrap();
            state.asked += 1;
            state.begin
        };
        says.answer().await?;
        let mut state = self.0.lock().unwrap();
        if !state.locked.insert(request.key()) {
            return Ok(None);
        }
        state.count.open += 1;
        Ok(Some(FakeTx {
            database: self.clone(),
            keys: vec![request.key()],
            ended: false,
        }))
    }

    /// Knows the statement that tries for a lock; any other answers with itself.
    async fn query<'a>(tx: &'a mut FakeTx, sql: &'a str, values: &'a [SqlValue<'a>]) -> Result<Option<TxRow>, TxError> {
        yield_now().await;
        let answer = match values {
            [SqlValue::Int(key)] if sql.contains("pg_catalog.pg_try_advisory_xact_lock($1") => {
                let key = Key::bigint(*key);
                if tx.database.0.lock().unwrap().locked.insert(key) {
                    tx.keys.push(key);
                    "granted"
                } else {
                    "busy"
                }
            }
            _ => sql,
        };
        Ok(Some(vec![Some(answer.to_owned().into())]))
    }

    async fn commit(mut tx: FakeTx) -> Result<(), TxError> {
        let says = tx.database.0.lock().unwrap().commit;
        let answer = says.answer().await;
        tx.ends(|count| {
            if answer.is_ok() {
                count.committed += 1;
            } else {
                count.rolled_back += 1;
            }
        });
        answer
    }

    async fn rollback(mut tx: FakeTx) -> Result<(), TxError> {
        let says = tx.database.0.lock().unwrap().rollback;
        says.answer().await?;
        tx.ends(|count| count.rolled_back += 1);
        Ok(())
    }
}

/// A transaction that counts as closed when it is dropped before its end.
#[derive(Debug)]
pub(crate) struct FakeTx {
    database: Database,
    keys: Vec<Key>,
    ended: bool,
}

impl FakeTx {
    fn ends(&mut self, count: impl FnOnce(&mut Count)) {
        let mut state = self.database.0.lock().unwrap();
        state.count.open -= 1;
        state.locked.retain(|key| !self.keys.contains(key));
        count(&mut state.count);
        self.ended = true;
    }
}

impl Drop for FakeTx {
    fn drop(&mut self) {
        if !self.ended {
            self.ends(|count| count.closed += 1);
        }
    }
}
