//! Is the server at the other end one whose advisory locks can be trusted? Asked at each connect.

mod error;
mod facts;
mod probe;

use std::time::SystemTime;

use tokio::time::{Instant, timeout_at};

pub use error::{CheckError, PoolMode};

use crate::connect::{ConnectError, Opened, SessionSettings, key_data_pid};

/// How it is found out, at the first connect of a process, whether advisory locks exclude.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExclusionProbe {
    /// What one session holds another is refused. It takes a second connection for a moment.
    #[default]
    TwoSessions,
    /// What a session holds is in `pg_locks`. One round trip, for programs that start often and end soon. An address that
    /// stands for several servers is not noticed. Behind a pooler there are two sessions all the same.
    OneSession,
}

/// What the checks found out about a server and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFacts {
    /// The version as a number: 150004 is 15.4.
    pub version: u32,
    /// The version as the server words it, with the name of the product.
    pub product: String,
    /// The process that serves this session.
    pub backend_pid: i32,
    /// The number of the database, as it stands in `pg_locks`.
    pub database_oid: u32,
    /// The name of the database.
    pub database: String,
    /// How many locks of all kinds fit into the server's lock table by its settings.
    pub lock_capacity: u64,
    /// Whether a pooler in session mode stands between.
    pub pooled: bool,
    /// When the server was started. A crash that it recovers from by itself does not move this.
    pub started: SystemTime,
}

impl ServerFacts {
    /// The major version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.version / 10_000
    }
}

/// Checks a fresh connection and sets the session up. One round trip when `known` fits, else the probes too.
pub(crate) async fn run(
    opened: &mut Opened,
    settings: &SessionSettings,
    known: Option<&ServerFacts>,
    deadline: Instant,
) -> Result<ServerFacts, ConnectError> {
    let server = opened.server.clone();
    let announced = key_data_pid(&opened.client.cancel_token())
        .await
        .map_err(|error| ConnectError::Server {
            server: server.clone(),
            source: error.into(),
        })?;
    let asked = facts::ask(opened, settings, announced).await?;
    let refused = |source| ConnectError::Refused {
        server: server.clone(),
        source,
    };
    let facts = facts::judge(&asked, announced).map_err(refused)?;

    let new_pooler = facts.pooled && !known.is_some_and(|known| known.pooled);
    let new_product = known.is_none_or(|known| known.product != facts.product);
    if new_pooler {
        // A full pool in session mode lets the second connection wait; half of the time is enough to see that.
        let probed = timeout_at(halfway(deadline), async {
            let mut second = opened.another().await?;
            probe::pool_mode(opened, &mut second, facts.backend_pid).await?;
            second.close().await;
            Ok(())
        });
        probed
            .await
            .unwrap_or_else(|_| Err(refused(CheckError::UnknownPooler)))?;
    }
    if new_product && (facts.pooled || settings.exclusion_probe == ExclusionProbe::TwoSessions) {
        let mut second = opened.another().await?;
        probe::exclusion(opened, &mut second, &facts.product).await?;
        second.close().await;
    } else if new_product {
        probe::own_lock(opened, &facts.product).await?;
    }
    if facts.pooled {
        // They were held back until it was known that this server process is ours for good.
        facts::apply_settings(opened, settings).await?;
    }
    facts::apply_check_interval(opened, settings, &facts.product).await?;
    Ok(facts)
}

fn halfway(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now) / 2
}
