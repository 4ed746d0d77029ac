//! What the database knows of the work.

use anyhow::Context as _;
use latchwork_harness::Cluster;

use crate::{shares::Shares, ship::SHARDS};

/// How many orders come before the leader is killed, and how many after that.
pub(crate) const ORDERS: [u32; 2] = [150, 150];

/// The tables that the workers work on.
#[derive(Debug)]
pub(crate) struct Books<'a>(&'a Cluster);

/// Who leads, by what was dispatched last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leader {
    pub(crate) name: String,
    pub(crate) term: String,
}

impl<'a> Books<'a> {
    pub(crate) fn open(cluster: &'a Cluster) -> anyhow::Result<Self> {
        cluster.psql(&format!(
            "CREATE TABLE orders (
                 id int PRIMARY KEY,
                 shard int NOT NULL GENERATED ALWAYS AS ((hashint4(id) & 2147483647) % {SHARDS}) STORED,
                 dispatched_by text, term text COLLATE \"C\",
                 shipped_by text, shipped_at timestamptz, times_shipped int NOT NULL DEFAULT 0
             );
             CREATE INDEX ON orders (shard, id) WHERE shipped_by IS NULL;
             CREATE TABLE reports (
                 tick timestamptz PRIMARY KEY, made_by text NOT NULL, shipped bigint NOT NULL,
                 times_made int NOT NULL DEFAULT 1
             )"
        ))?;
        Ok(Self(cluster))
    }

    pub(crate) fn take_orders(&self, number: u32) -> anyhow::Result<()> {
        self.0.psql(&format!(
            "INSERT INTO orders (id) SELECT last + n FROM generate_series(1, {number}) AS n, \
             (SELECT count(*) AS last FROM orders) AS o"
        ))?;
        Ok(())
    }

    /// `None` before anything was dispatched.
    pub(crate) fn leader(&self) -> anyhow::Result<Option<Leader>> {
        let last = self
            .0
            .psql("SELECT dispatched_by, term FROM orders WHERE term IS NOT NULL ORDER BY id DESC LIMIT 1")?;
        let leader = last.split_once('|').map(|(name, term)| Leader {
            name: name.to_owned(),
            term: term.to_owned(),
        });
        Ok(leader)
    }

    pub(crate) fn dispatched(&self) -> anyhow::Result<u32> {
        self.count("SELECT count(term) FROM orders")
    }

    /// The shards of each worker, by who has shipped last, of the orders after one.
    pub(crate) fn shares(&self, after: u32) -> anyhow::Result<Shares> {
        let last = self.0.psql(&format!(
            "SELECT DISTINCT ON (shard) shard, shipped_by FROM orders \
             WHERE shipped_by IS NOT NULL AND id > {after} ORDER BY shard, shipped_at DESC"
        ))?;
        let mut shares = Shares::default();
        for line in last.lines() {
            let (shard, name) = line.split_once('|').context("a shard, and who has it")?;
            shares.add(name, shard.parse()?);
        }
        Ok(shares)
    }

    pub(crate) fn all_are_shipped(&self) -> anyhow::Result<bool> {
        Ok(self.count("SELECT count(*) FROM orders WHERE shipped_by IS NULL")? == 0)
    }

    pub(crate) fn shipped_more_or_less_than_once(&self) -> anyhow::Result<u32> {
        self.count("SELECT count(*) FROM orders WHERE times_shipped <> 1")
    }

    /// How many orders were dispatched in a term when one of a later term had been.
    pub(crate) fn dispatched_too_late(&self) -> anyhow::Result<u32> {
        self.count(
            "SELECT count(*) FROM (SELECT term, max(term) OVER (ORDER BY id) AS latest FROM orders) AS o \
             WHERE term < latest",
        )
    }

    pub(crate) fn reports(&self) -> anyhow::Result<u32> {
        self.count("SELECT count(*) FROM reports")
    }

    pub(crate) fn made_twice(&self) -> anyhow::Result<u32> {
        self.count("SELECT count(*) FROM reports WHERE times_made > 1")
    }

    /// The seconds between the first report and the last that have none.
    pub(crate) fn missing(&self) -> anyhow::Result<u32> {
        self.count("SELECT extract(epoch FROM max(tick) - min(tick))::int + 1 - count(*) FROM reports")
    }

    /// Who has made reports, and how many.
    pub(crate) fn makers(&self) -> anyhow::Result<String> {
        let makers = "SELECT string_agg(made_by || ' ' || n, ', ' ORDER BY made_by) \
             FROM (SELECT made_by, count(*) AS n FROM reports GROUP BY made_by) AS m";
        Ok(self.0.psql(makers)?)
    }

    fn count(&self, sql: &str) -> anyhow::Result<u32> {
        Ok(self.0.psql(sql)?.parse()?)
    }
}
