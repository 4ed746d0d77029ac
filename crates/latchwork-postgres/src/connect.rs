//! From settings to a session that is known to be good for holding locks.

mod cancel;
mod error;
mod kept;
mod key_data;
mod open;
mod target;
mod wire;

use std::fmt;
use std::time::Duration;

use tokio_postgres::Client;

pub use cancel::{CancelError, Canceller};
pub use error::ConnectError;
pub use wire::Wire;

use crate::checks::{self, ExclusionProbe, ServerFacts};
use crate::config::Config;

pub(crate) use key_data::key_data_pid;
pub(crate) use open::{Opened, open};

/// What a session of ours sets on the server beside the time limits, which are always off.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionSettings {
    /// The name that others see in `pg_stat_activity`, cut to 63 bytes. `None` leaves what the [`Config`] says.
    pub application_name: Option<String>,
    /// After how much silence either side gives the other up: `idle_session_timeout` on 14 and later, and keepalive
    /// and `tcp_user_timeout` on both ends.
    pub silence: Duration,
    /// How often the server looks whether we are still there while it waits for a lock for us
    /// (`client_connection_check_interval`, 14 and later).
    pub check_interval: Duration,
    /// How it is found out whether advisory locks exclude.
    pub exclusion_probe: ExclusionProbe,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            application_name: None,
            silence: Duration::from_secs(15),
            check_interval: Duration::from_secs(2),
            exclusion_probe: ExclusionProbe::default(),
        }
    }
}

impl SessionSettings {
    /// Sets the name that others see.
    #[must_use]
    pub fn with_application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(name.into());
        self
    }

    /// Sets after how much silence either side gives the other up; the default is 15 seconds.
    #[must_use]
    pub fn with_silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }

    /// Sets how often the server looks for us while it waits; the default is 2 seconds.
    #[must_use]
    pub fn with_check_interval(mut self, interval: Duration) -> Self {
        self.check_interval = interval;
        self
    }

    /// Sets how it is found out whether advisory locks exclude; the default is with two sessions.
    #[must_use]
    pub fn with_exclusion_probe(mut self, probe: ExclusionProbe) -> Self {
        self.exclusion_probe = probe;
        self
    }
}

/// A session that has passed the checks.
#[non_exhaustive]
pub struct Connected {
    /// Sends statements. Nothing moves until [`wire`](Self::wire) is polled.
    pub client: Client,
    /// Moves the bytes; its owner polls it.
    pub wire: Wire,
    /// Asks the server to stop the statement that runs in this session.
    pub canceller: Canceller,
    /// What the checks found.
    pub facts: ServerFacts,
}

impl fmt::Debug for Connected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connected")
            .field("wire", &self.wire)
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

/// Connects, checks that the server is good for locks, and sets the session up.
///
/// `known` is what an earlier session of the same process found. With it the two-session probes are left out, unless
/// the server is a different one now. All of it together takes at most [`Config::connect_timeout`].
///
/// # Cancel safety
///
/// May be dropped at any await. The sessions that it opened are closed, and with them goes what they held.
///
/// # Errors
///
/// [`ConnectError`]; its [`is_permanent`](ConnectError::is_permanent) says whether trying again is of any use.
///
/// # Examples
///
/// ```no_run
/// use latchwork_postgres::config::Config;
/// use latchwork_postgres::connect::{SessionSettings, connect};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut connected = connect(&Config::from_env()?, &SessionSettings::default(), None).await?;
/// let asked = connected.client.simple_query("SELECT 1");
/// connected.wire.drive(asked).await?;
/// println!("PostgreSQL {}", connected.facts.major());
/// # Ok(())
/// # }
/// ```
pub async fn connect(
    config: &Config,
    settings: &SessionSettings,
    known: Option<&ServerFacts>,
) -> Result<Connected, ConnectError> {
    config.check().map_err(ConnectError::Config)?;
    let limit = config.connect_timeout();
    let deadline = tokio::time::Instant::now() + limit;
    let checked = async {
        let mut opened = open(config, settings, deadline).await?;
        let facts = checks::run(&mut opened, settings, known, deadline).await?;
        Ok(Connected {
            client: opened.client,
            wire: opened.wire,
            canceller: opened.canceller,
            facts,
        })
    };
    tokio::time::timeout_at(deadline, checked).await.unwrap_or_else(|_| {
        Err(ConnectError::TimedOut {
            server: target::all(config),
            limit,
        })
    })
}
