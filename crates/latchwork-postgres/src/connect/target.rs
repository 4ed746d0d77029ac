//! Which addresses to try, in which order.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use tokio::net::lookup_host;

use super::ConnectError;
use crate::config::{Config, HostEntry, LoadBalance, default_host};

/// One place where a server may listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Tcp {
        /// For TLS and messages; the address again if there is no name.
        name: String,
        address: IpAddr,
        port: u16,
    },
    Unix {
        folder: PathBuf,
        port: u16,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, address, port } if *name == address.to_string() => {
                write!(f, "{}", SocketAddr::new(*address, *port))
            }
            Self::Tcp { name, address, port } => write!(f, "{name}:{port} ({address})"),
            Self::Unix { folder, port } => write!(f, "{}/.s.PGSQL.{port}", folder.display()),
        }
    }
}

/// The hosts in the order in which they are to be tried.
pub(super) fn order(config: &Config) -> Vec<&HostEntry> {
    let mut hosts: Vec<_> = config.hosts().iter().collect();
    if config.load_balance() == LoadBalance::Random {
        fastrand::shuffle(&mut hosts);
    }
    hosts
}

/// Finds the addresses of one host.
pub(super) async fn resolve(config: &Config, host: &HostEntry) -> Result<Vec<Target>, ConnectError> {
    let port = host.port;
    let name = match (&host.name, host.address) {
        (name, Some(address)) => {
            let name = name.clone().unwrap_or_else(|| address.to_string());
            return Ok(vec![Target::Tcp { name, address, port }]);
        }
        (Some(name), None) => name.as_str(),
        (None, None) => default_host(port),
    };
    if host.is_socket() {
        return Ok(vec![Target::Unix {
            folder: PathBuf::from(name),
            port,
        }]);
    }
    let server = || format!("{name}:{port}");
    let found = lookup_host((name, port))
        .await
        .map_err(|source| ConnectError::UnknownHost {
            server: server(),
            source: source.into(),
        })?;
    let mut targets: Vec<_> = found
        .map(|found| Target::Tcp {
            name: name.to_owned(),
            address: found.ip(),
            port,
        })
        .collect();
    targets.dedup();
    if config.load_balance() == LoadBalance::Random {
        fastrand::shuffle(&mut targets);
    }
    if targets.is_empty() {
        return Err(ConnectError::UnknownHost {
            server: server(),
            source: "the name has no address".into(),
        });
    }
    Ok(targets)
}

/// Names every host, for messages.
pub(super) fn all(config: &Config) -> String {
    let names: Vec<_> = config.hosts().iter().map(one).collect();
    names.join(", ")
}

pub(super) fn one(host: &HostEntry) -> String {
    let address = host.address.map(|address| address.to_string());
    let name = host
        .name
        .as_deref()
        .or(address.as_deref())
        .unwrap_or_else(|| default_host(host.port));
    format!("{name}:{}", host.port)
}
