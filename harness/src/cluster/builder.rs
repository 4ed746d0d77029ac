use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Mutex;

use super::Cluster;
use crate::scratch::Scratch;
use crate::template::{self, template};
use crate::user::ServerUser;
use crate::{HarnessError, Installation};

/// The port where nobody else can be in the way: the socket's folder is private.
const SOCKET_PORT: u16 = 5432;
/// Another process may take a free TCP port between our look at it and the server's.
const PORT_TRIES: u32 = 5;

/// What makes a cluster differ from the default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recipe {
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) tcp: bool,
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

/// Describes a [`Cluster`] before it starts.
#[derive(Clone, Debug, Default)]
#[must_use = "a cluster exists only after start()"]
pub struct ClusterBuilder {
    installation: Option<Installation>,
    recipe: Recipe,
}

impl ClusterBuilder {
    /// Takes these binaries; the default is what [`Installation::find`] finds.
    pub fn installation(mut self, installation: Installation) -> Self {
        self.installation = Some(installation);
        self
    }

    /// Sets a parameter of postgresql.conf; the last value of a name counts.
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.recipe.settings.push((name.into(), value.to_string()));
        self
    }

    /// Listens also on a free port of 127.0.0.1; the default is the socket alone.
    pub fn tcp(mut self) -> Self {
        self.recipe.tcp = true;
        self
    }

    /// Replaces pg_hba.conf; the default trusts everybody on the socket and on 127.0.0.1.
    ///
    /// Keep a line such as `local all all trust` if [`psql`](Cluster::psql) is wanted.
    pub fn hba(self, lines: &str) -> Self {
        self.file("pg_hba.conf", lines)
    }

    /// Writes a file into the data folder before the start, readable by the server alone.
    pub fn file(mut self, name: impl Into<String>, contents: impl AsRef<[u8]>) -> Self {
        self.recipe.files.push((name.into(), contents.as_ref().to_owned()));
        self
    }

    /// Turns TLS on with this certificate chain and key, both PEM; it implies [`tcp`](Self::tcp).
    pub fn tls(self, certificate: &str, key: &str) -> Self {
        self.tcp()
            .file("server.crt", certificate)
            .file("server.key", key)
            .setting("ssl", "on")
            .setting("ssl_cert_file", "server.crt")
            .setting("ssl_key_file", "server.key")
    }

    /// Trusts client certificates that this PEM certificate has signed.
    pub fn client_ca(self, certificate: &str) -> Self {
        self.file("client-ca.crt", certificate)
            .setting("ssl_ca_file", "client-ca.crt")
    }

    /// Makes the cluster and waits until it takes connections.
    ///
    /// # Errors
    ///
    /// Fails when PostgreSQL is missing, when a setting is refused, or when the server does not start; the error holds
    /// the end of its log.
    pub fn start(self) -> Result<Cluster, HarnessError> {
        let installation = self.installation.map_or_else(Installation::find, Ok)?;
        let template = template(&installation, ServerUser::current()?)?;
        Cluster::create(installation, template, &self.recipe)
    }
}

impl Cluster {
    /// Copies the template and starts it, on another port if a stranger was faster.
    pub(crate) fn create(installation: Installation, template: PathBuf, recipe: &Recipe) -> Result<Self, HarnessError> {
        let user = ServerUser::current()?;
        let mut tries = 0;
        loop {
            let scratch = Scratch::new(user)?;
            template::copy(&template, &scratch.path().join("data"))?;
            let cluster = Self {
                scratch,
                server: Mutex::new(None),
                recipe: Mutex::new(recipe.clone()),
                installation: installation.clone(),
                template: template.clone(),
                port: if recipe.tcp { free_port()? } else { SOCKET_PORT },
            };
            for (name, contents) in &recipe.files {
                cluster.scratch.write(cluster.data_folder().join(name), contents)?;
            }
            tries += 1;
            match cluster.launch() {
                Err(HarnessError::StartFailed { log, .. }) if tries < PORT_TRIES && log.contains(PORT_TAKEN) => {}
                other => return other.map(|()| cluster),
            }
        }
    }
}

const PORT_TAKEN: &str = "could not bind IPv4 address";

/// A TCP port of 127.0.0.1 that nobody listens on now.
pub(crate) fn free_port() -> Result<u16, HarnessError> {
    TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(HarnessError::io("find a free port"))
}
