use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::HarnessError;
use crate::cluster::Cluster;
use crate::installation::find_program;
use crate::proxy::Endpoint;
use crate::scratch::Scratch;
use crate::server::{Server, ServerCommand, read_log};
use crate::url::libpq_url;
use crate::user::ServerUser;

const PORT: u16 = 6432;
const PATIENCE: Duration = Duration::from_secs(30);
const LOG: &str = "pgbouncer.log";

/// When PgBouncer gives a server connection back to its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolMode {
    /// When the client disconnects.
    Session,
    /// When the transaction ends.
    Transaction,
    /// After each statement.
    Statement,
}

impl PoolMode {
    fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
            Self::Statement => "statement",
        }
    }
}

/// A PgBouncer in front of a [`Cluster`], on a socket in a folder of its own.
///
/// It lets the user `postgres` in without a password. It ends as a cluster does: on drop, or with this process.
///
/// # Examples
///
/// ```no_run
/// use latchwork_harness::{Cluster, PgBouncer, PoolMode};
///
/// # fn main() -> Result<(), latchwork_harness::HarnessError> {
/// let cluster = Cluster::start()?;
/// let pooler = PgBouncer::start(&cluster, PoolMode::Transaction)?;
/// println!("connect to {}", pooler.url());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PgBouncer {
    scratch: Scratch,
    server: Server,
}

impl PgBouncer {
    /// Starts one on default settings.
    ///
    /// # Errors
    ///
    /// Fails when `pgbouncer` is not installed or does not start.
    pub fn start(cluster: &Cluster, mode: PoolMode) -> Result<Self, HarnessError> {
        Self::builder(cluster, mode).start()
    }

    /// Describes one with other settings.
    pub fn builder(cluster: &Cluster, mode: PoolMode) -> PgBouncerBuilder {
        PgBouncerBuilder {
            databases: format!("* = host={} port={}", cluster.host(), cluster.port()),
            settings: vec![("pool_mode".to_owned(), mode.name().to_owned())],
        }
    }

    /// The libpq URL of database `postgres` through the pooler.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_for("postgres")
    }

    /// The libpq URL of another database through the pooler.
    #[must_use]
    pub fn url_for(&self, database: &str) -> String {
        libpq_url("postgres", &self.scratch.path().display().to_string(), PORT, database)
    }

    /// The socket, as the upstream of a [`Proxy`](crate::Proxy).
    #[must_use]
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.scratch.path().join(format!(".s.PGSQL.{PORT}")))
    }

    /// Everything that the pooler has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        read_log(&self.scratch.path().join(LOG))
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.scratch.remove();
        self.server.reap();
    }
}

/// Describes a [`PgBouncer`] before it starts.
#[derive(Clone, Debug)]
#[must_use = "a pooler exists only after start()"]
pub struct PgBouncerBuilder {
    databases: String,
    settings: Vec<(String, String)>,
}

impl PgBouncerBuilder {
    /// Sets a parameter of the `[pgbouncer]` section, such as `default_pool_size` (its default is 20).
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// Starts it and waits until it takes connections.
    ///
    /// # Errors
    ///
    /// Fails when `pgbouncer` is not installed or does not start.
    pub fn start(self) -> Result<PgBouncer, HarnessError> {
        let program = find_program("pgbouncer").ok_or(HarnessError::MissingProgram {
            program: "pgbouncer",
            package: "pgbouncer",
        })?;
        let scratch = Scratch::new(ServerUser::current()?)?;
        let users = scratch.write("users.txt", b"\"postgres\" \"\"\n")?;
        let mut ini = format!("[databases]\n{}\n\n[pgbouncer]\n", self.databases);
        let fixed = [
            ("unix_socket_dir", scratch.path().display().to_string()),
            ("listen_port", PORT.to_string()),
            ("auth_type", "trust".to_owned()),
            ("auth_file", users.display().to_string()),
        ];
        let asked = self.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
        for (name, value) in fixed.into_iter().chain(asked) {
            ini += &format!("{name} = {value}\n");
        }
        let ini = scratch.write("pgbouncer.ini", ini.as_bytes())?;
        let command = ServerCommand {
            program: &program,
            arguments: vec![ini.as_os_str()],
            log: LOG,
            last_signal: "TERM",
        };
        let server = Server::start(&scratch, &command)?;
        let mut pooler = PgBouncer { scratch, server };
        let Endpoint::Unix(socket) = pooler.endpoint() else {
            return Ok(pooler);
        };
        pooler
            .server
            .wait_ready("pgbouncer", PATIENCE, || UnixStream::connect(&socket).is_ok())?;
        Ok(pooler)
    }
}
