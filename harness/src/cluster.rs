mod builder;
mod running;
mod standby;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::Signal;

pub use self::builder::ClusterBuilder;
pub(crate) use self::builder::{Recipe, free_port};
use crate::proxy::Endpoint;
use crate::psql::psql;
use crate::scratch::Scratch;
use crate::server::{Server, read_log};
use crate::url::libpq_url;
use crate::wait::lock;
use crate::{HarnessError, Installation};

/// How long a server may take to start or stop.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// How a server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopMode {
    /// Waits for all sessions to end (SIGTERM).
    Smart,
    /// Ends the sessions, then stops in order (SIGINT).
    Fast,
    /// Stops at once; the next start recovers as after a crash (SIGQUIT).
    Immediate,
}

impl StopMode {
    fn signal(self) -> Signal {
        match self {
            Self::Smart => Signal::TERM,
            Self::Fast => Signal::INT,
            Self::Immediate => Signal::QUIT,
        }
    }
}

/// A throw-away PostgreSQL cluster.
///
/// The superuser is `postgres`, everybody on the socket is trusted, the encoding is UTF8 and the locale C. `fsync` is off.
/// Dropping it stops the server at once and removes its folder; the same happens shortly after this process has ended
/// in any other way. All methods take `&self`, so a cluster may be shared between threads.
///
/// # Examples
///
/// ```no_run
/// use latchwork_harness::{Cluster, StopMode};
///
/// # fn main() -> Result<(), latchwork_harness::HarnessError> {
/// let cluster = Cluster::start()?;
/// cluster.psql("CREATE TABLE t ()")?;
/// cluster.restart(StopMode::Fast)?;
/// assert_eq!(cluster.psql("SELECT count(*) FROM t")?, "0");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Cluster {
    scratch: Scratch,
    server: Mutex<Option<Server>>,
    recipe: Mutex<Recipe>,
    installation: Installation,
    template: PathBuf,
    port: u16,
}

impl Cluster {
    /// Starts a cluster of the installation that [`Installation::find`] finds, on default settings.
    ///
    /// # Errors
    ///
    /// Fails when PostgreSQL is missing or does not start; the error holds the end of its log.
    pub fn start() -> Result<Self, HarnessError> {
        Self::builder().start()
    }

    /// Describes a cluster that differs from the default.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// The libpq URL of database `postgres` for the superuser, over the socket.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for("postgres", "postgres")
    }

    /// The libpq URL for another user or database, over the socket.
    #[must_use]
    pub fn url_for(&self, user: &str, database: &str) -> String {
        libpq_url(user, &self.host(), self.port, database)
    }

    /// The libpq URL for a user and a database over TCP; `None` unless the cluster was built with
    /// [`tcp`](ClusterBuilder::tcp).
    #[must_use]
    pub fn tcp_url_for(&self, user: &str, database: &str) -> Option<String> {
        lock(&self.recipe)
            .tcp
            .then(|| libpq_url(user, "127.0.0.1", self.port, database))
    }

    /// The folder of the socket, which is what libpq calls the host.
    #[must_use]
    pub fn host(&self) -> String {
        self.scratch.path().display().to_string()
    }

    /// The port, the same for the socket and for TCP.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The socket, as the upstream of a [`Proxy`](crate::Proxy).
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.scratch.path().join(format!(".s.PGSQL.{}", self.port)))
    }

    /// The data folder.
    #[must_use]
    pub fn data_folder(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// The binaries that it runs on.
    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Everything that the server has logged so far.
    ///
    /// Lines of severity WARNING, ERROR, LOG, FATAL and PANIC are there.
    #[must_use]
    pub fn log(&self) -> String {
        read_log(&self.scratch.path().join(LOG))
    }

    /// Runs SQL with `psql` as superuser in database `postgres` and returns the bare values, a row a line.
    ///
    /// # Errors
    ///
    /// Fails at the first statement that the server refuses, and when there is no `psql`.
    pub fn psql(&self, sql: &str) -> Result<String, HarnessError> {
        psql(&self.url(), &self.installation, sql)
    }

    /// The same as another user or in another database.
    ///
    /// # Errors
    ///
    /// As [`psql`](Self::psql).
    pub fn psql_as(&self, user: &str, database: &str, sql: &str) -> Result<String, HarnessError> {
        psql(&self.url_for(user, database), &self.installation, sql)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.scratch.path()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.scratch.remove();
        if let Some(server) = lock(&self.server).as_mut() {
            server.reap();
        }
    }
}

pub(crate) const LOG: &str = "postgres.log";
