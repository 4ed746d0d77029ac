use latchwork_core::{Key, Locks};
use latchwork_postgres::Postgres;

use crate::{
    Failure,
    locks::contender::{Contender, Stopwatch, Task},
};

/// Whether a cycle waits for the server's answer to the release.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Release {
    /// Drops the guard; the release goes with the next batch.
    Dropped,
    Awaited,
}

/// latchwork, with one session for all tasks.
#[derive(Debug)]
pub(crate) struct Ours {
    locks: Locks,
    release: Release,
    /// Hand-overs before the contest: every key has one task, so there must be no more.
    handed_over: u64,
}

impl Ours {
    pub(crate) fn new(postgres: &Postgres, release: Release) -> Self {
        let locks = postgres.locks();
        let handed_over = locks.stats().handed_over;
        Self {
            locks,
            release,
            handed_over,
        }
    }
}

impl Contender for Ours {
    type Task = OurTask;

    fn task(&self, key: i64) -> OurTask {
        OurTask {
            locks: self.locks.clone(),
            key: Key::bigint(key),
            release: self.release,
        }
    }

    async fn settle(&self) -> Result<(), Failure> {
        // Its answer comes behind those of all releases before it.
        let last = self
            .locks
            .try_acquire(Key::bigint(0))
            .await?
            .ok_or("the last key was not free")?;
        last.release().await?;
        if self.locks.stats().handed_over == self.handed_over {
            Ok(())
        } else {
            Err("a key went from one holder to the next without a word to the server".into())
        }
    }
}

#[derive(Debug)]
pub(crate) struct OurTask {
    locks: Locks,
    key: Key,
    release: Release,
}

impl Task for OurTask {
    async fn cycle(&mut self, watch: &mut Stopwatch) -> Result<(), Failure> {
        let guard = self.locks.try_acquire(self.key).await?;
        watch.acquired(guard.is_some())?;
        if let (Release::Awaited, Some(guard)) = (self.release, guard) {
            guard.release().await?;
        }
        Ok(())
    }
}
