//! Where the server is and how to reach it: libpq's URLs, keyword strings and environment variables.

mod driver;
mod env;
mod error;
mod keys;
mod options;
mod parse;
mod passfile;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

pub use error::ConfigError;
pub use options::{ChannelBinding, LoadBalance, SslMode, TargetSessionAttrs};

/// Connection settings, read as libpq reads them.
///
/// Both of libpq's forms are understood, `postgres://user:password@host:port/database?key=value` and
/// `host=.. port=.. user=..`, with lists of hosts, unix sockets (a host that starts with `/`, percent-encoded in a
/// URL) and these keys: `host`, `hostaddr`, `port`, `user`, `password`, `passfile`, `dbname`, `sslmode`,
/// `sslrootcert` (a PEM file, or `system`), `sslcert`, `sslkey`, `sslsni`, `sslnegotiation`, `connect_timeout`,
/// `target_session_attrs`, `load_balance_hosts`, `application_name`, `fallback_application_name`, `options`,
/// `keepalives`, `keepalives_idle`, `keepalives_interval`, `keepalives_count`, `tcp_user_timeout` (milliseconds) and
/// `channel_binding`. Other keys are errors, never ignored.
///
/// Differences from libpq: `connect_timeout` limits the whole of connecting, over all hosts, and is 5 seconds when it
/// is absent or zero; environment variables are read by [`from_env`](Self::from_env) only.
///
/// The password is shown by no `Debug` output and no error.
///
/// # Examples
///
/// ```
/// use latchwork_postgres::config::{Config, SslMode};
///
/// let config: Config = "postgres://app:secret@db1,db2:5433/shop?sslmode=verify-full".parse()?;
/// assert_eq!(config.ssl_mode(), SslMode::VerifyFull);
/// assert!(!format!("{config:?}").contains("secret"));
///
/// let socket: Config = "host=/var/run/postgresql dbname=shop".parse()?;
/// assert_eq!(socket.dbname(), Some("shop"));
/// # Ok::<(), latchwork_postgres::config::ConfigError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    hosts: Vec<HostEntry>,
    user: Option<String>,
    password: Option<Secret>,
    passfile: Option<PathBuf>,
    dbname: Option<String>,
    ssl_mode: SslMode,
    ssl_root_cert: Option<PathBuf>,
    ssl_cert: Option<PathBuf>,
    ssl_key: Option<PathBuf>,
    ssl_sni: bool,
    ssl_direct: bool,
    connect_timeout: Option<Duration>,
    target_session_attrs: TargetSessionAttrs,
    load_balance: LoadBalance,
    application_name: Option<String>,
    options: Option<String>,
    keepalives: bool,
    keepalives_idle: Option<Duration>,
    keepalives_interval: Option<Duration>,
    keepalives_count: Option<u32>,
    tcp_user_timeout: Option<Duration>,
    channel_binding: ChannelBinding,
}

/// One server to try: a name or a socket folder, the address to use instead of looking the name up, and the port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostEntry {
    pub(crate) name: Option<String>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

/// A text that does not print.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Config {
    /// How long connecting may take, over all hosts, when `connect_timeout` says nothing.
    pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// Starts from libpq's defaults: the local server's unix socket, the user's own name, `sslmode=prefer`.
    pub fn new() -> Self {
        Self {
            hosts: vec![HostEntry {
                name: None,
                address: None,
                port: 5432,
            }],
            user: None,
            password: None,
            passfile: None,
            dbname: None,
            ssl_mode: SslMode::default(),
            ssl_root_cert: None,
            ssl_cert: None,
            ssl_key: None,
            ssl_sni: true,
            ssl_direct: false,
            connect_timeout: None,
            target_session_attrs: TargetSessionAttrs::default(),
            load_balance: LoadBalance::default(),
            application_name: None,
            options: None,
            keepalives: true,
            keepalives_idle: None,
            keepalives_interval: None,
            keepalives_count: None,
            tcp_user_timeout: None,
            channel_binding: ChannelBinding::default(),
        }
    }

    /// Reads the environment: `DATABASE_URL`, or else libpq's `PGHOST`, `PGHOSTADDR`, `PGPORT`, `PGUSER`,
    /// `PGPASSWORD`, `PGDATABASE`, `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY`, `PGSSLNEGOTIATION`,
    /// `PGSSLSNI`, `PGAPPNAME`, `PGOPTIONS`, `PGCONNECT_TIMEOUT`, `PGTARGETSESSIONATTRS`, `PGLOADBALANCEHOSTS`,
    /// `PGCHANNELBINDING` and `PGGSSENCMODE`. Variables that would make it another connection, or guard it better, and that
    /// are not supported are errors then, such as `PGSERVICE` and `PGREQUIREAUTH`.
    ///
    /// When neither names a password, it is looked up at each connect in the file of `PGPASSFILE`, or `~/.pgpass`.
    ///
    /// # Errors
    ///
    /// [`ConfigError::NotSet`] when none of these variables is set, and what parsing their values gives.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let config = latchwork_postgres::config::Config::from_env()?;
    /// # Ok::<(), latchwork_postgres::config::ConfigError>(())
    /// ```
    pub fn from_env() -> Result<Self, ConfigError> {
        env::read(&|name| std::env::var_os(name))
    }

    /// Reads a URL or a list of keys, as [`from_str`](FromStr::from_str) does, and what it leaves open from libpq's
    /// variables, as libpq's own programs do. `DATABASE_URL` plays no part. The password file is that of
    /// [`from_env`](Self::from_env).
    ///
    /// # Errors
    ///
    /// What parsing the text, or the values of the variables, gives.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// // The password may be in PGPASSWORD.
    /// let config = latchwork_postgres::config::Config::from_text_and_env("postgres://db.internal/shop")?;
    /// # Ok::<(), latchwork_postgres::config::ConfigError>(())
    /// ```
    pub fn from_text_and_env(text: &str) -> Result<Self, ConfigError> {
        env::read_with(text, &|name| std::env::var_os(name))
    }

    /// Adds a server to try: a host name, an IP address, or the folder of a unix socket. The first call replaces the
    /// default.
    #[must_use]
    pub fn with_host(mut self, host: impl Into<String>, port: u16) -> Self {
        self.hosts
            .retain(|entry| entry.name.is_some() || entry.address.is_some());
        self.hosts.push(HostEntry {
            name: Some(host.into()),
            address: None,
            port,
        });
        self
    }

    /// Sets the role to log in as; the default is the name of the operating system's user.
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the password.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(Secret::new(password.into()));
        self
    }

    /// Sets the database; the default is the name of the user.
    #[must_use]
    pub fn with_dbname(mut self, dbname: impl Into<String>) -> Self {
        self.dbname = Some(dbname.into());
        self
    }

    /// Sets how TLS is used; the default is [`SslMode::Prefer`].
    #[must_use]
    pub fn with_ssl_mode(mut self, mode: SslMode) -> Self {
        self.ssl_mode = mode;
        self
    }

    /// Sets the PEM file with the root certificates to trust, or `system` for those of the operating system.
    #[must_use]
    pub fn with_ssl_root_cert(mut self, path: impl Into<PathBuf>) -> Self {
        self.ssl_root_cert = Some(path.into());
        self
    }

    /// Sets the PEM files of the client's certificate chain and its key.
    #[must_use]
    pub fn with_ssl_client_cert(mut self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.ssl_cert = Some(cert.into());
        self.ssl_key = Some(key.into());
        self
    }

    /// Sets what the server must be; the default is [`TargetSessionAttrs::Any`].
    #[must_use]
    pub fn with_target_session_attrs(mut self, attrs: TargetSessionAttrs) -> Self {
        self.target_session_attrs = attrs;
        self
    }

    /// Sets how long connecting may take in all; the default is [`DEFAULT_CONNECT_TIMEOUT`](Self::DEFAULT_CONNECT_TIMEOUT).
    #[must_use]
    pub fn with_connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = Some(limit);
        self
    }

    /// Sets the name that the server shows for our sessions (the first 63 bytes of it).
    #[must_use]
    pub fn with_application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(name.into());
        self
    }

    /// The role to log in as, if one is set.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The database, if one is set.
    #[must_use]
    pub fn dbname(&self) -> Option<&str> {
        self.dbname.as_deref()
    }

    /// How TLS is used.
    #[must_use]
    pub fn ssl_mode(&self) -> SslMode {
        self.ssl_mode
    }

    /// What the server must be.
    #[must_use]
    pub fn target_session_attrs(&self) -> TargetSessionAttrs {
        self.target_session_attrs
    }

    /// The name that the server shows for our sessions, if one is set.
    #[must_use]
    pub fn application_name(&self) -> Option<&str> {
        self.application_name.as_deref()
    }

    /// How long connecting may take in all.
    #[must_use]
    pub fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(Self::DEFAULT_CONNECT_TIMEOUT)
    }

    pub(crate) fn hosts(&self) -> &[HostEntry] {
        &self.hosts
    }

    pub(crate) fn load_balance(&self) -> LoadBalance {
        self.load_balance
    }

    pub(crate) fn ssl_root_cert(&self) -> Option<&Path> {
        self.ssl_root_cert.as_deref()
    }

    #[cfg(feature = "tls")]
    pub(crate) fn ssl_client_cert(&self) -> Option<(&Path, &Path)> {
        self.ssl_cert.as_deref().zip(self.ssl_key.as_deref())
    }

    #[cfg(feature = "tls")]
    pub(crate) fn ssl_sni(&self) -> bool {
        self.ssl_sni
    }

    pub(crate) fn ssl_direct(&self) -> bool {
        self.ssl_direct
    }

    /// Checks what only shows when all settings are known.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let system_roots = self.ssl_root_cert().is_some_and(|path| path.as_os_str() == "system");
        if system_roots && self.ssl_mode != SslMode::VerifyFull {
            let expected = "verify-full, the only mode that is safe with sslrootcert=system";
            return Err(ConfigError::InvalidValue {
                key: "sslmode",
                expected,
            });
        }
        if self.ssl_mode == SslMode::VerifyCa && self.ssl_root_cert.is_none() {
            let expected = "a file of root certificates, which sslmode=verify-ca needs";
            return Err(ConfigError::InvalidValue {
                key: "sslrootcert",
                expected,
            });
        }
        if self.ssl_cert.is_some() != self.ssl_key.is_some() {
            let key = if self.ssl_cert.is_some() { "sslkey" } else { "sslcert" };
            return Err(ConfigError::InvalidValue {
                key,
                expected: "a file, since sslcert and sslkey go together",
            });
        }
        if self.ssl_direct && !self.ssl_mode.requires_tls() {
            let expected = "postgres, or sslmode=require or stronger with direct";
            return Err(ConfigError::InvalidValue {
                key: "sslnegotiation",
                expected,
            });
        }
        if self.channel_binding == ChannelBinding::Require && self.ssl_mode == SslMode::Disable {
            let expected = "prefer or disable, since channel binding needs TLS and sslmode is disable";
            return Err(ConfigError::InvalidValue {
                key: "channel_binding",
                expected,
            });
        }
        Ok(())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        parse::parse(text)?.build()
    }
}

impl Secret {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("_")
    }
}

impl HostEntry {
    /// Says whether this is a unix socket.
    pub(crate) fn is_socket(&self) -> bool {
        let by_name = match &self.name {
            Some(name) => name.starts_with('/') || name.starts_with('@'),
            None => default_host(self.port).starts_with('/'),
        };
        by_name && self.address.is_none()
    }
}

/// Where the server is when nothing says so: the folder of its socket if there is one, else this machine.
pub(crate) fn default_host(port: u16) -> &'static str {
    let has_socket = |folder: &&&str| Path::new(folder).join(format!(".s.PGSQL.{port}")).exists();
    DEFAULT_SOCKET_FOLDERS
        .iter()
        .find(has_socket)
        .copied()
        .unwrap_or("localhost")
}

/// The folders where packages of PostgreSQL put the socket.
const DEFAULT_SOCKET_FOLDERS: &[&str] = &["/var/run/postgresql", "/run/postgresql", "/tmp"];

fn is_default_socket(name: &str) -> bool {
    DEFAULT_SOCKET_FOLDERS.contains(&name)
}

#[cfg(test)]
mod tests;
