//! Who has which shards.

use std::{collections::BTreeMap, fmt};

use crate::ship::SHARDS;

/// The shards of each worker.
#[derive(Debug, Default)]
pub(crate) struct Shares(BTreeMap<String, Vec<u32>>);

impl Shares {
    pub(crate) fn add(&mut self, worker: &str, shard: u32) {
        self.0.entry(worker.to_owned()).or_default().push(shard);
    }

    /// Whether somebody has each shard.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.values().map(Vec::len).sum::<usize>() == SHARDS as usize
    }

    /// Whether so many workers have all shards, each as many as the others, or one more.
    pub(crate) fn is_fair(&self, workers: usize) -> bool {
        let least = SHARDS as usize / workers;
        let is_fair = |shards: &Vec<u32>| (least..=least + 1).contains(&shards.len());
        self.is_complete() && self.0.len() == workers && self.0.values().all(is_fair)
    }
}

/// Shows `a has 4 6, b has 2 3 7`.
impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (worker, shards)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{worker} has")?;
            for shard in shards {
                write!(f, " {shard}")?;
            }
        }
        Ok(())
    }
}
