//! Hot standbys.

use super::{Cluster, PATIENCE};
use crate::HarnessError;
use crate::template::run;
use crate::wait::{lock, wait_until};

impl Cluster {
    /// Starts a hot standby that streams from this cluster, with the same settings, and waits until it can be read.
    ///
    /// The primary keeps running: the standby begins as the same copy of the same template, and replays all that has
    /// happened since. Its lag is then a matter of milliseconds; [`catch_up_with`](Self::catch_up_with) waits for it.
    ///
    /// # Errors
    ///
    /// Fails as [`ClusterBuilder::start`](crate::ClusterBuilder::start) does.
    pub fn standby(&self) -> Result<Self, HarnessError> {
        let mut recipe = lock(&self.recipe).clone();
        let source = format!("host={} port={} user=postgres", self.host(), self.port);
        recipe.settings.push(("primary_conninfo".to_owned(), source));
        recipe.files.push(("standby.signal".to_owned(), Vec::new()));
        Self::create(self.installation.clone(), self.template.clone(), &recipe)
    }

    /// Makes a standby a primary, and returns once it takes writes.
    ///
    /// # Errors
    ///
    /// Fails when the cluster is no standby.
    pub fn promote(&self) -> Result<(), HarnessError> {
        let mut command = self.scratch.user().command(self.installation.program("pg_ctl"));
        command
            .args(["promote", "--wait", "--pgdata"])
            .arg(self.data_folder())
            .current_dir(self.folder());
        run(&mut command, "pg_ctl promote")
    }

    /// Waits until this standby has replayed all that `primary` has committed.
    ///
    /// # Errors
    ///
    /// Fails after a minute, and when either server does not answer.
    pub fn catch_up_with(&self, primary: &Self) -> Result<(), HarnessError> {
        let target = primary.psql("SELECT pg_catalog.pg_current_wal_insert_lsn()")?;
        let question = format!("SELECT pg_catalog.pg_last_wal_replay_lsn() >= '{target}'::pg_lsn");
        let mut answer = Ok(String::new());
        let in_time = wait_until(PATIENCE, || {
            answer = self.psql(&question);
            !matches!(answer.as_deref(), Ok("f" | ""))
        });
        answer?;
        if in_time {
            return Ok(());
        }
        Err(HarnessError::TimedOut {
            what: "catching up with the primary".to_owned(),
            seconds: PATIENCE.as_secs(),
            log: crate::error::log_tail(&self.log()),
        })
    }
}
