//! Opening one connection: hosts in turn, TLS as asked, the kind of server as asked.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tokio_postgres::config::{SslMode as DriverMode, SslNegotiation};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::target::{self, Target};
use super::{Canceller, ConnectError, SessionSettings, Wire};
use crate::config::{Config, HostEntry, SslMode, TargetSessionAttrs};
use crate::tls::{self, TlsConnector, TlsError};

/// A connection that has logged in, and of which nothing more is known.
pub(crate) struct Opened {
    pub(crate) client: Client,
    pub(crate) wire: Wire,
    pub(crate) canceller: Canceller,
    /// The address, for messages.
    pub(crate) server: String,
    door: Door,
}

/// How this connection was made, to make another one to the same place.
#[derive(Clone)]
struct Door {
    driver: tokio_postgres::Config,
    target: Target,
    tls: TlsConnector,
}

impl Opened {
    /// Makes one more connection to the same address.
    pub(crate) fn another(&self) -> impl Future<Output = Result<Self, ConnectError>> + Send + use<> {
        // Not async over `&self`: the wire is not Sync, and whoever connects may be in any task.
        self.door.clone().enter()
    }

    /// Takes leave of the server, so that it does not see a connection that broke.
    pub(crate) async fn close(self) {
        let Self { client, mut wire, .. } = self;
        drop(client);
        wire.finish().await;
    }
}

impl Door {
    async fn enter(self) -> Result<Opened, ConnectError> {
        let server = self.target.to_string();
        match self.driver.connect(self.tls.clone()).await {
            Ok((client, connection)) => {
                let canceller = Canceller::new(client.cancel_token(), self.target.clone(), self.tls.clone());
                Ok(Opened {
                    client,
                    wire: Wire::new(connection),
                    canceller,
                    server,
                    door: self,
                })
            }
            Err(error) => Err(ConnectError::from_driver(error, &server)),
        }
    }
}

/// Connects to the first host that answers and is of the right kind.
pub(crate) async fn open(
    config: &Config,
    settings: &SessionSettings,
    deadline: Instant,
) -> Result<Opened, ConnectError> {
    let opener = Opener {
        config,
        settings,
        deadline,
        tls: connector(config).await?,
    };
    match config.target_session_attrs() {
        TargetSessionAttrs::PreferStandby => match opener.any_host(TargetSessionAttrs::Standby).await {
            Err(error) if !ends_the_search(&error) => opener.any_host(TargetSessionAttrs::Any).await,
            other => other,
        },
        wanted => opener.any_host(wanted).await,
    }
}

/// Reads the certificate files away from the tasks of the runtime.
async fn connector(config: &Config) -> Result<TlsConnector, ConnectError> {
    if config.hosts().iter().all(HostEntry::is_socket) {
        return Ok(TlsConnector::none());
    }
    let ours = config.clone();
    let made = tokio::task::spawn_blocking(move || ours.tls_connector()).await;
    let made = made.unwrap_or_else(|error| Err(TlsError::Handshake { source: error.into() }));
    made.map_err(|source| ConnectError::Tls {
        server: target::all(config),
        source,
    })
}

struct Opener<'a> {
    config: &'a Config,
    settings: &'a SessionSettings,
    deadline: Instant,
    tls: TlsConnector,
}

impl Opener<'_> {
    async fn any_host(&self, wanted: TargetSessionAttrs) -> Result<Opened, ConnectError> {
        let hosts = target::order(self.config);
        let mut worst: Option<ConnectError> = None;
        for (index, host) in hosts.iter().enumerate() {
            let share = self.share(hosts.len() - index);
            let error = match timeout_at(share, self.one_host(host, wanted, share)).await {
                Ok(Ok(opened)) => return Ok(opened),
                Ok(Err(error)) => error,
                Err(_) => ConnectError::TimedOut {
                    server: target::one(host),
                    limit: self.config.connect_timeout(),
                },
            };
            if ends_the_search(&error) {
                return Err(error);
            }
            if worst.as_ref().is_none_or(|worst| error.weight() > worst.weight()) {
                worst = Some(error);
            }
        }
        Err(worst.unwrap_or_else(|| ConnectError::Unreachable {
            server: target::all(self.config),
            source: "no host is configured".into(),
        }))
    }

    /// Until when the first of `remaining` candidates may take: a host that swallows packets must not use up the time
    /// of those after it.
    fn share(&self, remaining: usize) -> Instant {
        let now = Instant::now();
        let left = self.deadline.saturating_duration_since(now);
        now + left / u32::try_from(remaining).unwrap_or(u32::MAX)
    }

    async fn one_host(
        &self,
        host: &HostEntry,
        wanted: TargetSessionAttrs,
        deadline: Instant,
    ) -> Result<Opened, ConnectError> {
        let targets = target::resolve(self.config, host).await?;
        let password = self.config.password_for(host);
        let mut last = None;
        for (index, target) in targets.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(targets.len() - index).unwrap_or(u32::MAX);
            let mut driver = self.config.driver();
            if let Some(password) = &password {
                driver.password(password.expose());
            }
            let opened = match self.one_target(driver, target, share).await {
                Ok(opened) => self.of_right_kind(opened, wanted).await,
                Err(error) => Err(error),
            };
            match opened {
                Err(error) if !ends_the_search(&error) => last = Some(error),
                decided => return decided,
            }
        }
        // A name that resolves has at least one address.
        Err(last.unwrap_or_else(|| ConnectError::UnknownHost {
            server: target::one(host),
            source: "the name has no address".into(),
        }))
    }

    async fn one_target(
        &self,
        mut driver: tokio_postgres::Config,
        target: &Target,
        limit: Duration,
    ) -> Result<Opened, ConnectError> {
        driver.connect_timeout(limit.max(Duration::from_millis(1)));
        self.config.apply_keepalive(&mut driver, self.settings.silence);
        if let Some(name) = &self.settings.application_name {
            driver.application_name(name);
        }
        match target {
            Target::Unix { folder, port } => {
                driver.host_path(folder).port(*port).ssl_mode(DriverMode::Disable);
                return self.attempt(&driver, target).await;
            }
            Target::Tcp { name, address, port } => driver.host(name).hostaddr(*address).port(*port),
        };
        if self.config.ssl_direct() {
            driver.ssl_negotiation(SslNegotiation::Direct);
        }
        let mode = self.config.ssl_mode();
        let first = self.attempt(driver.ssl_mode(tls::driver_mode(mode)), target).await;
        match (first, mode) {
            // As libpq: one more try the other way when the server does not take it this way.
            (Err(error), SslMode::Prefer) if is_refused_with_tls(&error) => self
                .attempt(driver.ssl_mode(DriverMode::Disable), target)
                .await
                .map_err(|_| error),
            (Err(error), SslMode::Allow) if is_refused_by_rule(&error) && tls::AVAILABLE => self
                .attempt(driver.ssl_mode(DriverMode::Require), target)
                .await
                .map_err(|_| error),
            (first, _) => first,
        }
    }

    async fn attempt(&self, driver: &tokio_postgres::Config, target: &Target) -> Result<Opened, ConnectError> {
        let door = Door {
            driver: driver.clone(),
            target: target.clone(),
            tls: self.tls.clone(),
        };
        door.enter().await
    }

    async fn of_right_kind(&self, mut opened: Opened, wanted: TargetSessionAttrs) -> Result<Opened, ConnectError> {
        if wanted == TargetSessionAttrs::Any {
            return Ok(opened);
        }
        let kind = server_kind(&mut opened).await?;
        let fits = match wanted {
            TargetSessionAttrs::ReadWrite => !kind.read_only,
            TargetSessionAttrs::ReadOnly => kind.read_only,
            TargetSessionAttrs::Primary => !kind.standby,
            TargetSessionAttrs::Standby => kind.standby,
            TargetSessionAttrs::Any | TargetSessionAttrs::PreferStandby => true,
        };
        if fits {
            return Ok(opened);
        }
        Err(ConnectError::WrongKind {
            server: opened.server,
            wanted: wanted.name(),
        })
    }
}

struct ServerKind {
    standby: bool,
    read_only: bool,
}

async fn server_kind(opened: &mut Opened) -> Result<ServerKind, ConnectError> {
    const QUESTION: &str =
        "SELECT pg_catalog.pg_is_in_recovery()::text, pg_catalog.current_setting('transaction_read_only')";
    let answer = opened.wire.drive(opened.client.simple_query(QUESTION)).await;
    let messages = answer.map_err(|error| ConnectError::from_driver(error, &opened.server))?;
    let row = messages.into_iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    match row
        .as_ref()
        .and_then(|row| Some((row.try_get(0).ok()??, row.try_get(1).ok()??)))
    {
        Some((standby, read_only)) => Ok(ServerKind {
            standby: standby == "true",
            read_only: read_only == "on",
        }),
        None => Err(ConnectError::Server {
            server: opened.server.clone(),
            source: "the question for the kind of server had no answer".into(),
        }),
    }
}

/// As libpq: a server that was reached and does not let this user in ends the search.
fn ends_the_search(error: &ConnectError) -> bool {
    match error {
        ConnectError::Config(_)
        | ConnectError::Authentication { .. }
        | ConnectError::PasswordMissing { .. }
        | ConnectError::NoSuchDatabase { .. } => true,
        ConnectError::Tls { source, .. } => source.is_permanent(),
        _ => false,
    }
}

fn is_refused_with_tls(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Tls { .. }) || is_refused_by_rule(error)
}

/// Says whether `pg_hba.conf` has no rule for this kind of connection.
fn is_refused_by_rule(error: &ConnectError) -> bool {
    let ConnectError::Authentication { source, .. } = error else {
        return false;
    };
    let driver = source.downcast_ref::<tokio_postgres::Error>();
    driver.and_then(tokio_postgres::Error::code) == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
}
