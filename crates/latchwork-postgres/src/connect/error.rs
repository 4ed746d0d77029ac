use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use thiserror::Error;
use tokio_postgres::error::SqlState;

use crate::checks::CheckError;
use crate::config::ConfigError;
use crate::tls::TlsError;

type Source = Box<dyn StdError + Send + Sync>;

/// Why there is no session.
///
/// No variant shows a password. The cause is in `source()`, not in the text.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The settings contradict each other.
    #[error("the connection settings cannot be used; change them")]
    Config(#[source] ConfigError),
    /// The host name has no address.
    #[error("the host of {server} is not known; check the name, and the name service of this machine")]
    UnknownHost {
        /// The host and the port.
        server: String,
        /// What the name service says.
        source: Source,
    },
    /// Nothing answers there, or it hung up.
    #[error(
        "no PostgreSQL server answers at {server}; check that it runs, and that host, port and firewall let this \
         machine through"
    )]
    Unreachable {
        /// The address.
        server: String,
        /// What the operating system says.
        source: Source,
    },
    /// Connecting and checking took too long.
    #[error(
        "connecting to {server} took longer than {limit:?}; check the network and the load of the server, or raise \
         connect_timeout"
    )]
    TimedOut {
        /// The address, or all of them.
        server: String,
        /// The limit that ran out.
        limit: Duration,
    },
    /// The server does not let this user in.
    #[error("the server at {server} refuses the login; check the user name, the password and the server's pg_hba.conf")]
    Authentication {
        /// The address.
        server: String,
        /// What the server says.
        source: Source,
    },
    /// The server asks for a password, and there is none.
    #[error(
        "the server at {server} asks for a password and none is set; put it in the URL, in PGPASSWORD or in ~/.pgpass"
    )]
    PasswordMissing {
        /// The address.
        server: String,
    },
    /// There is no such database.
    #[error("the server at {server} has no such database; create it, or correct dbname")]
    NoSuchDatabase {
        /// The address.
        server: String,
        /// What the server says.
        source: Source,
    },
    /// Every connection slot is taken.
    #[error(
        "the server at {server} has no connection left; close idle ones, raise max_connections, or put a pooler in \
         front of the other clients"
    )]
    TooManyConnections {
        /// The address.
        server: String,
        /// What the server says.
        source: Source,
    },
    /// The server is starting up, shutting down or recovering.
    #[error("the server at {server} does not take connections at the moment (starting or stopping); try again soon")]
    NotReady {
        /// The address.
        server: String,
        /// What the server says.
        source: Source,
    },
    /// The connection cannot be encrypted as asked.
    #[error("the connection to {server} cannot be encrypted as the settings ask")]
    Tls {
        /// The address.
        server: String,
        /// Why not.
        source: TlsError,
    },
    /// Servers answered, and none is of the kind that `target_session_attrs` asks for.
    #[error(
        "none of {server} is what target_session_attrs={wanted} asks for; name another host, or change the setting"
    )]
    WrongKind {
        /// The address, or all of them.
        server: String,
        /// What was asked for.
        wanted: &'static str,
    },
    /// The server answered, and is not good for locks.
    #[error("the server at {server} is refused")]
    Refused {
        /// The address.
        server: String,
        /// Why, and what to do.
        source: CheckError,
    },
    /// The server reported anything else, or spoke in a way that is not understood.
    #[error("the server at {server} ended the connection attempt; see the cause, and the server's log")]
    Server {
        /// The address.
        server: String,
        /// What the server says.
        source: Source,
    },
}

impl ConnectError {
    /// Says whether the same attempt fails again until somebody changes the settings or the server, so that trying
    /// again is of no use.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Config(_)
            | Self::Authentication { .. }
            | Self::PasswordMissing { .. }
            | Self::NoSuchDatabase { .. } => true,
            Self::Tls { source, .. } => source.is_permanent(),
            Self::Refused { source, .. } => source.is_permanent(),
            Self::UnknownHost { .. }
            | Self::Unreachable { .. }
            | Self::TimedOut { .. }
            | Self::TooManyConnections { .. }
            | Self::NotReady { .. }
            | Self::WrongKind { .. }
            | Self::Server { .. } => false,
        }
    }

    /// Says whether a limit ran out.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Sorts an error of the driver.
    pub(crate) fn from_driver(error: tokio_postgres::Error, server: &str) -> Self {
        let server = server.to_owned();
        if let Some(code) = error.code() {
            return Self::from_sqlstate(&code.clone(), server, error.into());
        }
        let cause = error.source();
        if cause.is_some_and(|cause| cause.is::<TlsError>()) {
            return match error.into_source().map(|cause| cause.downcast::<TlsError>()) {
                Some(Ok(source)) => Self::Tls {
                    server,
                    source: *source,
                },
                Some(Err(source)) => Self::Server { server, source },
                None => Self::Server {
                    server,
                    source: "the driver gives no cause".into(),
                },
            };
        }
        if error.is_closed() || cause.is_some_and(|cause| cause.is::<io::Error>()) {
            return Self::Unreachable {
                server,
                source: error.into(),
            };
        }
        Self::from_text(error, server)
    }

    /// The driver keeps the kind of an error to itself; its texts are all there is to go by.
    fn from_text(error: tokio_postgres::Error, server: String) -> Self {
        let cause = error.source().map(ToString::to_string);
        match (error.to_string().as_str(), cause.as_deref()) {
            ("error performing TLS handshake", Some("server does not support TLS")) => Self::Tls {
                server,
                source: TlsError::NotOffered,
            },
            ("error performing TLS handshake", _) => Self::Tls {
                server,
                source: TlsError::Handshake { source: error.into() },
            },
            ("invalid configuration", Some("password missing")) => Self::PasswordMissing { server },
            ("authentication error", _) => Self::Authentication {
                server,
                source: error.into(),
            },
            _ => Self::Server {
                server,
                source: error.into(),
            },
        }
    }

    fn from_sqlstate(code: &SqlState, server: String, source: Source) -> Self {
        match code.code() {
            // 28P01 invalid_password, 28000 invalid_authorization_specification
            "28P01" | "28000" => Self::Authentication { server, source },
            "3D000" => Self::NoSuchDatabase { server, source },
            "53300" => Self::TooManyConnections { server, source },
            // cannot_connect_now, admin_shutdown, crash_shutdown
            "57P03" | "57P01" | "57P02" => Self::NotReady { server, source },
            _ => Self::Server { server, source },
        }
    }

    /// How much an error says about what is wrong, to choose among those of several hosts.
    pub(super) fn weight(&self) -> u8 {
        match self {
            Self::UnknownHost { .. } | Self::Unreachable { .. } => 0,
            Self::TimedOut { .. } => 1,
            Self::WrongKind { .. } => 2,
            Self::NotReady { .. } | Self::TooManyConnections { .. } | Self::Server { .. } => 3,
            _ => 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_are_sorted_by_what_the_caller_can_do() {
        let table = [
            ("28P01", "refuses the login", true),
            ("28000", "refuses the login", true),
            ("3D000", "no such database", true),
            ("53300", "no connection left", false),
            ("57P03", "starting or stopping", false),
            ("57P01", "starting or stopping", false),
            ("57P02", "starting or stopping", false),
            ("08P01", "ended the connection attempt", false),
            ("XX000", "ended the connection attempt", false),
        ];
        for (code, expected, permanent) in table {
            let cause = "told by the server";
            let error = ConnectError::from_sqlstate(&SqlState::from_code(code), "db:5432".to_owned(), cause.into());
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains("db:5432"), "{code}: {text}");
            assert!(!text.contains(cause), "the source is not a part of the text: {text}");
            assert_eq!(error.is_permanent(), permanent, "{code}");
        }
    }
}
