use latchwork_core::{Key, Locks};
use latchwork_postgres::{Postgres, PostgresOptions};

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
}

impl Ours {
    pub(crate) async fn connect(url: &str, release: Release) -> Result<Self, Failure> {
        let postgres = Postgres::connect(url.parse()?, PostgresOptions::default()).await?;
        Ok(Self {
            locks: postgres.locks(),
            release,
        })
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
        // Every key has one task.
        if self.locks.stats().handed_over == 0 {
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
