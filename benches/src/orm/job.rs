use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use latchwork_harness::Proxy;

/// How a transaction comes to have its row to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    /// It does not.
    None,
    /// By the library's own transaction, whose SELECT says FOR UPDATE.
    ForUpdate,
    /// By our locked transaction.
    Ours,
}

impl Lock {
    pub(crate) const ALL: [Self; 3] = [Self::None, Self::ForUpdate, Self::Ours];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::None => "no lock",
            Self::ForUpdate => "FOR UPDATE",
            Self::Ours => "ours",
        }
    }
}

/// What one transaction is to do: read the row's stock, and write one less.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) lock: Lock,
    pub(crate) row: i64,
    watched: Option<Arc<Watch>>,
}

impl Job {
    pub(crate) const fn new(lock: Lock, row: i64) -> Self {
        Self {
            lock,
            row,
            watched: None,
        }
    }

    pub(crate) const fn watched(lock: Lock, row: i64, watch: Arc<Watch>) -> Self {
        Self {
            lock,
            row,
            watched: Some(watch),
        }
    }

    /// To be called before the first statement of the work.
    pub(crate) fn begins(&self) {
        if let Some(watch) = &self.watched {
            watch.begins.store(watch.proxy.round_trips(), Ordering::Relaxed);
        }
    }

    /// To be called after the last statement of the work.
    pub(crate) fn ends(&self) {
        if let Some(watch) = &self.watched {
            watch.ends.store(watch.proxy.round_trips(), Ordering::Relaxed);
        }
    }
}

/// Looks at how many round trips there were when the work of a transaction begins and ends.
#[derive(Debug)]
pub(crate) struct Watch {
    proxy: Proxy,
    begins: AtomicU64,
    ends: AtomicU64,
}

impl Watch {
    pub(crate) const fn new(proxy: Proxy) -> Self {
        Self {
            proxy,
            begins: AtomicU64::new(0),
            ends: AtomicU64::new(0),
        }
    }

    pub(crate) fn url(&self) -> String {
        self.proxy.url()
    }

    pub(crate) fn now(&self) -> u64 {
        self.proxy.round_trips()
    }

    /// The counts when the last transaction's work began and ended.
    pub(crate) fn of_the_last(&self) -> (u64, u64) {
        (self.begins.load(Ordering::Relaxed), self.ends.load(Ordering::Relaxed))
    }
}
