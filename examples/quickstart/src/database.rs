//! Where the locks live.

use std::env;

use latchwork::Config;
use latchwork::memory::MemoryServer;
use latchwork_harness::{Cluster, HarnessError, Installation};

use crate::account::note;
use crate::failure::{Failure, chain};

/// What both instances share.
#[derive(Debug)]
pub(crate) enum Database {
    /// The server that `DATABASE_URL` names.
    Given,
    /// A throw-away cluster, stopped and removed when this is dropped or the process ends.
    Cluster(Box<Cluster>),
    /// No PostgreSQL at all, and why not.
    Memory(MemoryServer, &'static str),
}

impl Database {
    /// Takes `DATABASE_URL`, else the installed binaries, else memory.
    pub(crate) async fn find(memory: bool) -> Result<Self, Failure> {
        if memory {
            return Ok(Self::Memory(MemoryServer::new(), "the in-memory engine was asked for"));
        }
        if env::var_os("DATABASE_URL").is_some_and(|url| !url.is_empty()) {
            // The instances read it too; a mistake is best told once, and before anything has started.
            Config::from_env()
                .map_err(|error| Failure::usage(format!("DATABASE_URL cannot be used: {}", chain(&error))))?;
            note("Using the server that DATABASE_URL names.");
            return Ok(Self::Given);
        }
        match Installation::find() {
            Ok(installation) => Self::start_cluster(installation).await,
            Err(HarnessError::NoInstallation) => Ok(Self::Memory(MemoryServer::new(), NOTHING_FOUND)),
            Err(error) => Err(error.into()),
        }
    }

    async fn start_cluster(installation: Installation) -> Result<Self, Failure> {
        let version = installation.version();
        note(&format!("Starting a throw-away cluster of PostgreSQL {version}."));
        let start = move || Cluster::builder().installation(installation).start();
        let cluster = tokio::task::spawn_blocking(start).await??;
        Ok(Self::Cluster(Box::new(cluster)))
    }

    /// What the account calls it.
    pub(crate) fn description(&self) -> String {
        match self {
            Self::Given => "the PostgreSQL that DATABASE_URL names".to_owned(),
            Self::Cluster(cluster) => format!(
                "PostgreSQL {}, a throw-away cluster in {}",
                cluster.installation().version(),
                cluster.host()
            ),
            Self::Memory(..) => "the in-memory engine".to_owned(),
        }
    }

    /// What a run on it cannot show, and why it is this one nevertheless.
    pub(crate) fn notice(&self) -> Option<String> {
        match self {
            Self::Memory(_, reason) => Some(format!("NOTICE: {reason}.\n        {MEMORY_SHOWS_LESS}")),
            Self::Given | Self::Cluster(_) => None,
        }
    }

    /// The URL to give to an instance; `None` for the one that it inherits.
    pub(crate) fn url(&self) -> Option<String> {
        match self {
            Self::Cluster(cluster) => Some(cluster.url()),
            Self::Given | Self::Memory(..) => None,
        }
    }
}

const NOTHING_FOUND: &str = "\
no PostgreSQL was found: DATABASE_URL is not set, and no server is installed
        (`apt-get install postgresql` on Debian installs one)";
const MEMORY_SHOWS_LESS: &str = "\
Both instances run inside this one process and share locks in its memory. This cannot show that
        locks hold between processes or machines, that they are free again when a process dies (the
        session of an instance is ended instead), or what happens when the database is away.";
